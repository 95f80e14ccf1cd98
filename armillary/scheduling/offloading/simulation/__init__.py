"""Pods of two backends that serve requests, with a controller that looks at them from time to time."""
