"""When a queue's jobs would start if nothing unforeseen happened."""
