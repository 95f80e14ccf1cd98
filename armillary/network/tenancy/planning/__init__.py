"""How many VNIs a cluster needs."""
