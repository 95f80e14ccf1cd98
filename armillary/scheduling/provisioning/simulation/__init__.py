"""What a plan delivers: requests that queue at the nodes, event by event."""
