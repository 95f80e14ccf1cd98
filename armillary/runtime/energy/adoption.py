"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Wrap the run in `Meter` and fit `TaskPower` to its trace, or give `armillary compare` the trace and the readings."
