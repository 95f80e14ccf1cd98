"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give the subdomains to `SchurAssembler`, which returns explicit Schur complements or operators for them."
