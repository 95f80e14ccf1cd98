"""The node, the layouts of a model on it, their prices, and the copies after a loss."""
