"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `dace_ad` on a NumPy function with loops; it returns the gradient's function."
