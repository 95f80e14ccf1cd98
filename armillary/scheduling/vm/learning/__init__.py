"""The data, the networks and the training of what predicts quality of service."""
