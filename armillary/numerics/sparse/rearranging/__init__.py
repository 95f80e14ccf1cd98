"""Permute, extract and assign, over ranks and on one process, and how they are measured."""
