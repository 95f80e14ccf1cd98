"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run `armillary green serve` beside kube-scheduler, with the power of the nodes in a cluster file."
