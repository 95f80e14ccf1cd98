"""The tiers of nodes, the rates of links and nodes that vary over time, and the cost of blocks on them."""
