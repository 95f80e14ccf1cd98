"""Configurations, what they cost in the analytic model, and questions about them."""
