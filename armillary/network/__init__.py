"""How data moves between nodes: backends, routes, collectives, halos, notification, clocks, transport, tenancy."""
