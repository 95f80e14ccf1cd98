"""How predictions are judged: intervals for techniques that have none, and the errors of the last slice."""
