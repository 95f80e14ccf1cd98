"""A node that serves in simulated time while its GPUs fail and come back."""
