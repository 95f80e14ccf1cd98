"""Answers from a run: efficiency, lost time by cause, clocks, regions, iterations, and the difference of two runs."""
