"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run the scheduler extender, or put `LocalRunner` before the functions on one machine."
