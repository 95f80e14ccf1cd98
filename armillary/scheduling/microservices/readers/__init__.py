"""Applications and traces from files."""
