"""What a response is worth and how long it takes to know."""
