"""Measuring exchanges against a loop written by hand, in one set of ranks."""
