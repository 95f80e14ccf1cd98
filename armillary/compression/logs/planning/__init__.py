"""Which order the fields get: plans, entropies, the search, and what every technique offers."""
