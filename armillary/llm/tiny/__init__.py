"""A tiny transformer that really runs here (PyTorch), and the engine that serves it by the simulator's own batching policies."""
