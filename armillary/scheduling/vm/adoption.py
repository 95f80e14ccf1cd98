"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give the counters of your hosts to `Weigher`, for OpenStack's filter scheduler or the Kubernetes extender."
