"""What is known about an instance, and models that turn it into CPU use under co-location."""
