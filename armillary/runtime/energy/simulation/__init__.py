"""Runs whose power is known, and the meters that read it."""
