"""Faults, and how far they spread."""
