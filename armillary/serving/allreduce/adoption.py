"""How people take these techniques into use, and on which machines the question arises."""

HOW = "`tuner_table` writes the choices per size and group for the collective library; in-network sums need switches that add."
NEEDS = (
    "gpu",
    "nodes",
)
