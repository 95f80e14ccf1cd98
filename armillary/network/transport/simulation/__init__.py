"""Workflows in simulated time."""
