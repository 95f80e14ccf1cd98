"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Plan with armillary.scheduling.quantum and send the parts to the processors in that order; circuits come as OpenQASM."
NEEDS = ("qpu",)
