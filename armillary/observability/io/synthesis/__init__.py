"""I/O programs with planted faults, and how long they take on a small model of a file system."""
