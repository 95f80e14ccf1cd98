"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run `armillary vni serve`, install the CNI plugin on the nodes, and check the manifests with `audit`."
