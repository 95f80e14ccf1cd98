"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run the scheduler extender of armillary.scheduling.kubernetes beside kube-scheduler."
