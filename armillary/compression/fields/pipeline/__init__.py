"""Stages put together, the container that they write, and arrays to bytes and back."""
