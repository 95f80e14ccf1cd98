"""Which rounds to choose: the front of traffic and quality, and the fastest way to a loss over a given network."""
