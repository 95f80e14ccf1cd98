"""Readers of a user's text."""
