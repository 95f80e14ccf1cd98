"""Parts that the image dispatchers share: requests for images, workers with their stores, and the service in simulated time."""
