"""TRACE behind the schedulers of Kubernetes and OpenStack."""
