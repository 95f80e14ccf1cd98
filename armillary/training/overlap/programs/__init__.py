"""Tile programs: the eight primitives, the template, and one program per operator."""
