"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give models, devices and prompts to `SplitQuant`; its plan says which layers run where, at which bits."
NEEDS = ("gpu",)
