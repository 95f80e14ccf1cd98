"""Virtual ranks: thousands of ranks in one process, in simulated time."""
