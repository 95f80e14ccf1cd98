"""The library's own float64 product, which every other one is compared with.

Dongarra, Du Croz, Hammarling, Duff: A set of level 3 BLAS. 1990.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary import arrays

from .products.method import Info, Method


@dataclass(frozen=True)
class Native(Method):
    """The product of BLAS, or of the device's library, in float64. Dongarra, Du Croz, Hammarling, Duff: A set of level 3 BLAS. 1990."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        # γ_k = k·u / (1 − k·u) holds in whatever order the sum is taken, with or without fused multiply-add.
        inner = a.shape[1]
        return a @ b, Info("native", bound=inner / (1 - inner * 2.0**-53))
