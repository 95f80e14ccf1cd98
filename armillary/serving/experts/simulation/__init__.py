"""Evaluates a placement: which device gets which request, what is sent, and how long that takes."""
