"""What makes a call task-aware: streams, the polling service, chains, tokens, and the choice of an API."""
