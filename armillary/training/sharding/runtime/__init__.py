"""Sharded training on ranks: collectives, groups of weights, and the module around them."""
