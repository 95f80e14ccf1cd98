"""Making data smaller before it moves."""
