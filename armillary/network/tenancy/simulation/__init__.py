"""Pods that start, tenants that attack, and jobs that come and go, in simulated time."""
