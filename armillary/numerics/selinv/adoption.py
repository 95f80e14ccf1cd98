"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `factor` and `selected_inverse` of armillary.numerics.selinv on block tridiagonal arrowhead matrices."
