"""Factorisation and selected inversion over one rank or many, and the reference that answers are graded against."""
