"""Meshes as arrays, from files and from generators."""
