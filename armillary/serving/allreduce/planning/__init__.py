"""Where prefill and decode instances go: what an iteration costs, placements, and the search for the best one."""
