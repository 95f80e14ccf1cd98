"""Batches of sequences of different lengths: chunks of tokens, what they cost, how they are cut, packed and recomputed."""
