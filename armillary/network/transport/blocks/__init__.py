"""Blocks of global arrays, and who needs what of whose."""
