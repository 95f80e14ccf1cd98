"""The computations that are watched, as loops that count what they do."""
