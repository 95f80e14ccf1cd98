"""Which chunks should lie side by side, what one round moves, and where overwritten content goes."""
