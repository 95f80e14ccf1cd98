"""Workflows as stages: their tasks and files, what each stage moves, and how that grows with the scale."""
