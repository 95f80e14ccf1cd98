"""What each part brings, and the smallest allocation that is safe."""
