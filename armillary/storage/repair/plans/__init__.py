"""Repair plans and what planners share: problems, shares, trees, the linear programme."""
