"""How people take these techniques into use, and on which machines the question arises."""

HOW = "`Governor` of armillary.scheduling.slurm holds and releases jobs of a running Slurm; it needs a history of the jobs' I/O."
NEEDS = ("nodes",)
