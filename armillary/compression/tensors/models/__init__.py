"""Weights of models: read from files, compressed layer by layer, written back."""
