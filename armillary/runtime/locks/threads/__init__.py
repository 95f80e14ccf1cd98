"""Real threads on real cores."""
