"""Users' files."""
