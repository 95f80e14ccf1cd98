"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Describe the exchange as a `Pattern`; `advise` says which strategy to use, and `measure` tries it with your MPI library."
