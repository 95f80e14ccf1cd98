"""Linear programs from files: MPS, CPLEX's LP format, and arrays."""
