"""Schedules on real processes."""
