"""Where chunks go, when to profile again, and what spans will last: the parts of a plan."""
