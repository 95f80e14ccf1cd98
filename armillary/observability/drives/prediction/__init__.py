"""What an operator does with trained networks: drives at risk, why, how long they will last, what a threshold costs, and when to refit."""
