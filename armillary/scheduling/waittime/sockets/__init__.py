"""Where the techniques meet real systems."""
