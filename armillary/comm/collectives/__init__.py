"""Collective calls: the operations, and the algorithms that carry them out over messages."""
