"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Routing is set in the switches; simulate your topology and traffic with armillary.network.routing before you ask the vendor for it."
NEEDS = ("dragonfly",)
