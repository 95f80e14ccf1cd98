"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Put `ContextScheduler` or `TailBatcher` before the engines of the rollout; the algorithm is not changed."
NEEDS = ("gpu",)
