"""How the order of the fields is chosen: plans, entropies, the search, and the methods that every technique offers."""
