"""How policies decide and how their decisions are played out."""
