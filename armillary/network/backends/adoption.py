"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Write to the one communicator of armillary.comm; `fastest_backend` measures which library to run it on."
