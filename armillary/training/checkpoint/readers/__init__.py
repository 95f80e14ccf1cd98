"""Traces of expert load and of failures."""
