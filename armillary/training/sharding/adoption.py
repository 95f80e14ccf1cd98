"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `shard` of armillary.training.sharding on the module in place of `fully_shard`."
NEEDS = ("gpu",)
