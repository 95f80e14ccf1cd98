"""The sub-protocols of the trade-off: a fallible clock, FindTarget, Detect, reset and Rank, over one set of variables."""
