"""Descriptions of programs in files."""
