"""Graphs: how they are generated, partitioned and sampled."""
