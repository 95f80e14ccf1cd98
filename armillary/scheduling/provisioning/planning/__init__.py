"""What the techniques share: the state of a plan that is being changed, its repair, and the moves of the local search."""
