"""Judges a plan by running its pipeline event by event."""
