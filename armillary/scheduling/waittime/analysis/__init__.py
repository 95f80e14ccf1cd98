"""What each part of the technique brings, and which request would start soonest."""
