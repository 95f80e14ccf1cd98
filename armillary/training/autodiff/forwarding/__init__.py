"""What becomes of the values that the reverse pass needs and that are overwritten: stored, or computed again."""
