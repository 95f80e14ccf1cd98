"""Drafts from what siblings said: the structure that proposes them, its server, and the tokens that are accepted."""
