"""Where a decision goes: Knative, the Kubernetes scheduler, and processes on this machine."""
