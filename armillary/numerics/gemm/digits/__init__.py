"""Matrices as int8 digits, their products, and the exponents that decide how many digits are needed."""
