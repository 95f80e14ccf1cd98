"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Put the placement that `placement` computes, or the rule itself, into the routers' caches."
