"""Requests through the tiers in simulated time, and how each tier chooses a node for them."""
