"""Ranks as threads of this process."""
