"""Plans for other programs: Kubernetes manifests and GeoJSON."""
