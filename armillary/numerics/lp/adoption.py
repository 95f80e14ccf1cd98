"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `solve` of armillary.numerics.lp on matrices or an MPS file; `advise` says whether it pays off for your programme."
