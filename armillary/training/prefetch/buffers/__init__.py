"""Buffers of remote features: the scored one, and the one that a training loop asks."""
