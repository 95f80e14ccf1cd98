"""The network of caching nodes, and the loop in which requests walk through it."""
