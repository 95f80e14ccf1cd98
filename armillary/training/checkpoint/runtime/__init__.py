"""Checkpoints of real training over torch process groups."""
