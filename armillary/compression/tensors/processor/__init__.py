"""Modelled edge processors that decompose tensors."""
