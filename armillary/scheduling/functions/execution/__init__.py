"""Calls that really run on this machine."""
