"""When to replace: the control loop and its policies."""
