"""A user's topologies, catalogues and requests."""
