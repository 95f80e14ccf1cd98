"""Energy readings: from a file, from this machine's counters, and the thread that takes them."""
