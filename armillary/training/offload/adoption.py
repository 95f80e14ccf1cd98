"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Wrap the module's hooks with armillary.training.offload; the plan is made from the first iterations."
NEEDS = ("gpu",)
