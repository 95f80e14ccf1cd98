"""Locks for other people's code."""
