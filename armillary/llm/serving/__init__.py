"""The serving simulator: requests, the replicas that batch them, and the router in front."""
