"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Write the protocol down, check it with `armillary compare trust/protocols --work`, and use the generated endpoints or the monitor."
NO_ANSWERS = ("none",)
