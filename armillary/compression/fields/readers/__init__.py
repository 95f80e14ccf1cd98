"""Fields from files."""
