"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run the protocol's transition function on each agent; `choose` picks the protocol for a number of agents and of bits."
