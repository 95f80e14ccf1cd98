"""One matrix: outputs by the rest, cut by its singular values. Eckart, Young: The approximation of one matrix by another, 1936."""

from __future__ import annotations

from dataclasses import dataclass

from .decomposition.method import Array, Compressed, Decomposition
from .decomposition.tensor_train import tt_svd


@dataclass(frozen=True)
class MatrixSvd(Decomposition):
    """One unfolding, outputs by the rest, cut by its singular values."""

    def compress(self, tensor: Array) -> Compressed:
        """Returns a train of two modes."""
        train = tt_svd(tensor.reshape(tensor.shape[0], -1), self.eps, engine="gesdd")
        return Compressed(train.size, lambda: train.full().reshape(tensor.shape))
