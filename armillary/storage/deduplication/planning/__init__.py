"""Advice before anything is moved."""
