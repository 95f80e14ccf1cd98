"""Steps of an AMR code in simulated time."""
