"""What follows from playing a scenario under several policies."""
