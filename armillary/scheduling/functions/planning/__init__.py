"""How a size, a node type and a node are chosen for a call."""
