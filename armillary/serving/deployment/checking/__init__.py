"""Checks of the rendered files, settings read back from them, and a smoke test and a benchmark of a running service."""
