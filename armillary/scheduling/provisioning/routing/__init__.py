"""Paths of requests through instances: layered shortest paths, with and without capacities."""
