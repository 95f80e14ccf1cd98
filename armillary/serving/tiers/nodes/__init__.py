"""The tiers of nodes, the rates of links and nodes that vary over time, and what blocks cost on them."""
