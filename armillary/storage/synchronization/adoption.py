"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `sync` on two folders, or use the protocol between replicas of your own."
