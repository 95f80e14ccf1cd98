"""Where placements go: the scheduler of Kubernetes and the cgroups of a node."""
