"""Places prefill and decode instances: the cost of an iteration, placements, and the search for the best one."""
