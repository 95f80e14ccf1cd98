"""Networks over the last days of a drive: their parts, how they are trained, and how they score without PyTorch."""
