"""Moving data between nodes: backends, routes, collectives, halos, notification, clocks, transport, tenancy."""
