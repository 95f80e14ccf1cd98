"""Parts of one all-reduce: formulas, paths, the wires of a cluster, an aggregating switch, and a tuner's table."""
