"""Simulated training: what is fetched in every minibatch, and how long that takes."""
