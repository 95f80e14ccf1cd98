"""How a model is cut into one segment per tier."""
