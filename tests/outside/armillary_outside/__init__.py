"""What another package would write to add arenas and a technique."""
