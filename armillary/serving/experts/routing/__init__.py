"""Routing traces from files, drawn ones, and those of a real small model."""
