"""A linear program, how far a point is from its optimum, and what every solver has in common."""
