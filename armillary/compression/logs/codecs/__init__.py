"""Logs inside numcodecs."""
