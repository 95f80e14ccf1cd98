"""Threads and cache lines in simulated time."""
