"""Files of adapters, of requests for them, and of requests for images."""
