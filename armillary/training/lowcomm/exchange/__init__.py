"""How workers exchange tensors: their mean over the ranks, and the codes in which differences travel."""
