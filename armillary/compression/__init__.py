"""Making data smaller: simulation fields within an error bound, logs without loss, tensors by low rank."""
