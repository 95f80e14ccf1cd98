"""Optimizers that work on ragged shares: element-wise ones, and those that need whole blocks or whole matrices."""
