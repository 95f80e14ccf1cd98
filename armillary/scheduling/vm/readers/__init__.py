"""Tables of metrics and Azure's public VM traces."""
