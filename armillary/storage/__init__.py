"""Keeping data: caches, stores, repair, metadata and replicas."""
