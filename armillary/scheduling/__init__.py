"""Scheduling: which work runs where, when, and with how much of the machine."""
