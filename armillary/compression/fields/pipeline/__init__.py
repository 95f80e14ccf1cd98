"""Pipelines of stages, the container that they write, and how arrays become bytes and come back."""
