"""Matrices of blocks in a chain with an arrow: storage, partitions, streaming, and kernels on one block."""
