"""How the weights of a group lie in the buffers of its collectives."""
