"""Drivers of other task runtimes, each run by an interpreter that has that runtime; they import nothing of Armillary."""
