"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Put `RudderBuffer` between the sampler and the feature store of the trainer."
