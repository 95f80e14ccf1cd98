"""What is known about I/O faults, when it applies, and how it is found."""
