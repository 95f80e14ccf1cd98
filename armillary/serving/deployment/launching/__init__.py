"""How many replicas a service needs, and how it is started on this machine."""
