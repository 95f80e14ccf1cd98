"""Requests, one by one, through services with threads and quotas."""
