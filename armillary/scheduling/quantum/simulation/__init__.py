"""Circuits played gate by gate on shared communication qubits, and batches of jobs played to their end."""
