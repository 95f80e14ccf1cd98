"""A queue of batch jobs on one machine: its state, what backfilling plans and decides on it, and a model of the jobs that arrive."""
