"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Feed Prometheus's figures to `Ddrm` and send its `resize_patch` to Kubernetes, which resizes pods in place since 1.33."
