"""Choosing a strategy for a mesh: features, the measured table, the network and its training."""
