"""What each GPU holds and what that costs: the node, its layouts, their prices, and what a loss makes it copy."""
