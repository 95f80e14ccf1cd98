"""Counted operations, the rates of the kernels, and how many ranks pay off."""
