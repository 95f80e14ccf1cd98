"""What each part brings, and why one host is preferred to another."""
