"""Where chunks lie, and the parts of which layouts are made."""
