"""Tucker: a core and one factor per mode. De Lathauwer, De Moor, Vandewalle: A multilinear singular value decomposition, 2000."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .decomposition.method import Array, Compressed, Decomposition


@dataclass(frozen=True)
class Tucker(Decomposition):
    """A core and one factor per mode."""

    def compress(self, tensor: Array) -> Compressed:
        """Computes the HOSVD, truncated mode by mode."""
        d = tensor.ndim
        tail = self.eps / d**0.5 * float(np.linalg.norm(tensor))
        core, factors = tensor, []
        for axis in range(d):
            unfolding = np.moveaxis(core, axis, 0).reshape(core.shape[axis], -1)
            values, vectors = np.linalg.eigh(unfolding @ unfolding.T)
            lost = np.cumsum(np.maximum(values, 0))
            rank = max(1, len(values) - int(np.searchsorted(lost, tail**2, side="right")))
            factor = np.ascontiguousarray(vectors[:, ::-1][:, :rank])
            core = np.moveaxis(np.tensordot(factor, core, (0, axis)), 0, axis)
            factors.append(factor)

        def full() -> Array:
            made = core
            for axis, factor in enumerate(factors):
                made = np.moveaxis(np.tensordot(factor, made, (1, axis)), 0, axis)
            return made

        return Compressed(core.size + sum(factor.size for factor in factors), full)
