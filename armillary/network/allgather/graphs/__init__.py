"""Graphs of neighbours: how they are kept and checked, the built-in ones, and those from files."""
