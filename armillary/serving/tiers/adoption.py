"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give `Hyperion` the profile of the model and the links; it returns the cuts and routes requests."
