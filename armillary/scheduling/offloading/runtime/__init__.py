"""Gaia's Dynamic Function Runtime: the rules, and a controller that keeps their state beside a running platform."""
