"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run functions through `GaiaRuntime`, or put its decision into Knative's service files."
NEEDS = ("gpu",)
