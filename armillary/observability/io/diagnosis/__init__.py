"""From a log to findings: fragments, rules, merging, and the report."""
