"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Use `permute`, `extract` and `assign` on SciPy matrices, or `DistributedMatrix` over a communicator."
