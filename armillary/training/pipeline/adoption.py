"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Hand the plan to `torch.distributed.pipelining`; armillary.training.pipeline writes its schedule."
NEEDS = ("gpu",)
