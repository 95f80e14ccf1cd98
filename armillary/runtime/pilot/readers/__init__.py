"""Lists of tasks, histories of Slurm and profiles of RADICAL-Pilot, as work for a simulated pilot. Nothing that they name is executed."""
