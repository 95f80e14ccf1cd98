"""Offloading that really runs: a module whose parameters live on a GPU, in the host and in files."""
