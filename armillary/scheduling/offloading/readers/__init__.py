"""Request logs and Prometheus' answers."""
