"""Saturation, exact channel loads, dependencies between channels, ablations."""
