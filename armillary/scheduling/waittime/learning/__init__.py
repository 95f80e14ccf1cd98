"""The learned map from what is known at submission to the wait: two heads, and how they are trained and stored."""
