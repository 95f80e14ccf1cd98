"""How one all-reduce is sent: formulas, paths, the wires of a cluster, an aggregating switch, and a tuner's table."""
