"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Write the table of `TwinSearch` into the router's configuration; `TwinModel.fit` needs a few measured rows of your model."
NEEDS = ("gpu",)
