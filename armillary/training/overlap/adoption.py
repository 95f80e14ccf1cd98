"""How people take these techniques into use, and on which machines the question arises."""

HOW = "`advise` picks mechanism and tile order for an operator; the Triton kernels run it on one GPU."
NEEDS = ("gpu",)
