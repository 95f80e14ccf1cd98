"""What a running application needs: advice from its metrics, and patches for Kubernetes."""
