"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give a Darshan log to `armillary compare observability/io --work`; no change of the programs is needed."
