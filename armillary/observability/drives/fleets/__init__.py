"""Drives and their days: what a fleet is, and fleets that are drawn from a model of how drives fail."""
