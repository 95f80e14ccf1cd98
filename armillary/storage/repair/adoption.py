"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Plan with `plan_repair` from the free bandwidths, and let the store's workers follow it; `execute` does so on arrays."
NEEDS = ("nodes",)
