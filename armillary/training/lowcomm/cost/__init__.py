"""Seconds and bytes that are modelled from what was measured."""
