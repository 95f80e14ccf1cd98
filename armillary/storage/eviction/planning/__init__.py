"""Miss-ratio curves, from which a cache size or a policy is chosen."""
