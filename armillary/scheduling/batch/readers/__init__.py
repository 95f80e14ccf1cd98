"""Readers of what is known about the I/O of jobs."""
