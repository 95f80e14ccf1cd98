"""A user's trees, image layouts and traces of writes."""
