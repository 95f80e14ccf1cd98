"""Readers of workflows, stream configurations and metadata."""
