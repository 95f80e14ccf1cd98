"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Compress with `armillary.compression.logs`, or name the numcodecs codec `armillary.log-lines`; the lines come back in their order."
