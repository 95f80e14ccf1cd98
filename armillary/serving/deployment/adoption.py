"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Describe the service once, and `armillary deploy render` writes the files for Kubernetes, Slurm or this machine."
