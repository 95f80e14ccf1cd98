"""Ranks in a shape: boxes and graphs of neighbours, and the process grid of linear algebra."""
