"""What is sent: synthetic patterns, messages with dependencies, traces."""
