"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Use `SimdMap` for look-ups of many keys at once, or `fast_isin` in place of `numpy.isin`."
