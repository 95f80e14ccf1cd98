"""A sparse matrix on a process grid: blocks, index vectors, and the exchange of entries."""
