"""From a function and its arguments to a compiled gradient: parse, lower, find what matters, reverse, plan, write, compile."""
