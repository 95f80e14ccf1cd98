"""The matrices of the runs."""
