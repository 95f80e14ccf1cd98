"""The orders of actions that the literature knows, each a function that returns a `Schedule`; those of torch have torch's exact order."""
