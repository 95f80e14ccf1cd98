"""Placements of experts, the co-clustering that finds them, and the rule for planning again."""
