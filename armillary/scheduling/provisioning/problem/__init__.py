"""What is planned: the edge network, its services and requests, plans and their checker, and the integer program."""
