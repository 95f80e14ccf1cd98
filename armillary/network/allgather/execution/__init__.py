"""How a schedule is carried out: by ranks that move bytes, and by a compiled loop that only counts time."""
