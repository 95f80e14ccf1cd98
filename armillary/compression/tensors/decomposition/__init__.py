"""What the decompositions share: modes, the split SVD, tensor trains, and what each of them offers."""
