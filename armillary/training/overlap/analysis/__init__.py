"""What each part brings."""
