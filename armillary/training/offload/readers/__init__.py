"""Readers of recorded traces of tensor accesses."""
