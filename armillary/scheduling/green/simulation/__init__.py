"""Slots of a minute: pods are placed, nodes sleep and wake, and power is counted."""
