"""Simulates requests through the tiers, and the choice of a node for them in each tier."""
