"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Take `Pilot` in place of a process pool or of one `srun` per task; inside a Slurm job it finds the nodes by itself."
