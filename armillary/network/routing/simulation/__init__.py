"""The packet network, cycle by cycle."""
