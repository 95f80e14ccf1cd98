"""Reed-Solomon codes and their arithmetic."""
