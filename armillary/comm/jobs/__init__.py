"""Ranks that are processes of their own: how a program reaches them and how its results come back."""
