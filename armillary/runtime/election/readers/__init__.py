"""Populations and schedules in files."""
