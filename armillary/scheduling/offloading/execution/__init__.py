"""Backends that really run on this machine."""
