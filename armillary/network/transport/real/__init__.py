"""Workflows that really run, over ADIOS2."""
