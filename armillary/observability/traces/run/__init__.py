"""A run: what every process, thread, stream and device did and when, in columns."""
