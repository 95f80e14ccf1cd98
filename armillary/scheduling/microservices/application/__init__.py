"""What is managed: services, and requests that call them."""
