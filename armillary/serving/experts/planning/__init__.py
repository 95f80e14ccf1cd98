"""Where experts go: placements, the co-clustering that finds them, and when to plan again."""
