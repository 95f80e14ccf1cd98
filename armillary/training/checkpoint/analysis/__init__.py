"""What each part brings, and what hindsight would have done."""
