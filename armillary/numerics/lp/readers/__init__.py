"""Readers of linear programs in files: MPS, CPLEX's LP format, and arrays."""
