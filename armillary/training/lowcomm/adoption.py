"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Wrap the optimizer with `DiLoCo` of armillary.training.lowcomm; `fastest` picks the length of a round."
