"""What each part brings, and the rate of the link at which stalls vanish."""
