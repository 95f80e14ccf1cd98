"""Circuits: gates in order, the built-in families, and how qubits are cut into blocks."""
