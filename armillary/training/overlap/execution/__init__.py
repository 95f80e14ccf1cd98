"""Real runs of tile programs on ranks of this machine."""
