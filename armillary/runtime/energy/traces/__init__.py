"""Which task ran where and when, as the models see it, and the formats that it is read from."""
