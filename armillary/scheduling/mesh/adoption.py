"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `place` or `rebalance` of armillary.scheduling.mesh with the blocks' measured costs when the mesh is adapted."
