"""A rank's share of a matrix file."""
