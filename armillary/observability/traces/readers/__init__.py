"""Readers of exports and traces, each of which gives a `Run`."""
