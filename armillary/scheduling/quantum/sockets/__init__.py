"""Programs for each processor."""
