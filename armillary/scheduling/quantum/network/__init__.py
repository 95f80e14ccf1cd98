"""Quantum processors and the entanglement links between them."""
