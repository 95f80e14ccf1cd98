"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `compress_model` of armillary.compression.tensors on a PyTorch module, with a budget in bytes."
