"""GreenK8s on a real cluster: the scheduler extender, manifests, and measurements from Prometheus."""
