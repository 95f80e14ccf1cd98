"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Run `align` of armillary.network.clocks on live ranks or on their traces; the algorithm itself belongs into the clock daemon."
