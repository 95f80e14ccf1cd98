"""What starts tasks for the real pilot: our spawner, warm interpreters, `srun`, Dragon and Dask; and a Slurm on one machine."""
