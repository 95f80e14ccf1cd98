"""Which techniques look inside the algorithm."""

INSIDE = ("abft", "residual", "aid", "range", "duplicate", "combined")
