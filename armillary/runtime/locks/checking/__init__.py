"""Every interleaving of a few threads, searched here and emitted for SPIN."""
