"""What each part brings, and the size at which the GPU begins to pay."""
