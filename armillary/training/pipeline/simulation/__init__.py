"""Schedules and their simulation."""
