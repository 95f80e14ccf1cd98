"""What every product has in common, its accuracy, and the ways to call it."""
