"""What every policy has in common, and how a trace is replayed on it."""
