"""How people take these techniques into use, and on which machines the question arises."""

HOW = "`from_slurm` trains on the log of your Slurm and says how long a job will wait; nothing in the scheduler changes."
NEEDS = ("nodes",)
