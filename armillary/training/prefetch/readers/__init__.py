"""Readers of graphs and partitions."""
