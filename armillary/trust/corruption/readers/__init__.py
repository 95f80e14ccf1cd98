"""Counter logs of one's own."""
