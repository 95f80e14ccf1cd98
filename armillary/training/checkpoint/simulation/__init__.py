"""Simulated training with checkpoints: iterations, storage, failures, and what they give."""
