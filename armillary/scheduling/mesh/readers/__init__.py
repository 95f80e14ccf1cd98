"""Meshes, costs and messages from files."""
