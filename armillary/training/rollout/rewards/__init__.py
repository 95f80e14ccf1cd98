"""Rewards of responses, and how long it takes to compute them."""
