"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give sites, links and requests to a planner of armillary.scheduling.provisioning, and deploy what `deliver` lists."
