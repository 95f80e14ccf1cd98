"""The parts that the decompositions share: modes, the split SVD, tensor trains, and the methods of a decomposition."""
