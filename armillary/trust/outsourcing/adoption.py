"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Set up a client with `Client.setup`, run `armillary 2g2t serve` where there are cores, and check with `client.verify`."
