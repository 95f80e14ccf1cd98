"""Workflows that really run on this machine."""
