"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Use `FifoMep().mapping(capacity)` or `memoize` in Python; in a cache server the policy replaces one queue."
