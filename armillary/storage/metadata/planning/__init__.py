"""Advice on a user's tree."""
