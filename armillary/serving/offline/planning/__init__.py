"""Parts that the planners share: the problem, its exact program, plans, and advice that takes several plans."""
