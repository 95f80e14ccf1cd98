"""What leaves: job scripts and resources for workflow systems."""
