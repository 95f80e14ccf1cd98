"""Readers of fields in files."""
