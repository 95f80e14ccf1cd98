"""Where counters come from."""
