"""What each part brings, and what a carbon budget costs."""
