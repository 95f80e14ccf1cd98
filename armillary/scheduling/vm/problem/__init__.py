"""The fleet, what is measured of its VMs, and what a technique sees at one instant."""
