"""Cases of the user as files."""
