"""What each part brings, and what green means beyond the sun."""
