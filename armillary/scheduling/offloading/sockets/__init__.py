"""What a platform takes: annotated Knative manifests, and lines that a CI prints."""
