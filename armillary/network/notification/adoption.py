"""How people take these techniques into use, and on which machines the question arises."""

HOW = "The search and `advise` work on a trace of your own; user-level interrupts need a processor and a kernel that have them."
