"""What is known about the costs of blocks."""
