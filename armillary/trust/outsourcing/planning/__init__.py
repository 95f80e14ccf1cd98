"""Whether it pays to ask a server: from rates, a network and a number of queries."""
