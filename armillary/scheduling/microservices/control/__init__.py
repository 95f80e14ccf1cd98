"""How techniques decide, second by second."""
