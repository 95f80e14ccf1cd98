"""The library's own products: float64 as it is, and float32 for those who think that it is enough."""

from __future__ import annotations

from dataclasses import dataclass

from armillary import arrays

from .method import Info, Method


@dataclass(frozen=True)
class Native(Method):
    """BLAS, or the device library, in float64. Dongarra, Du Croz, Hammarling, Duff: A set of level 3 BLAS. 1990."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        # Whatever the order of the sum, and with or without fused multiply-add: γ_k = k·u / (1 − k·u).
        inner = a.shape[1]
        return a @ b, Info("native", bound=inner / (1 - inner * 2.0**-53))


@dataclass(frozen=True)
class Float32(Method):
    """Rounded to float32 before, float64 after. Dongarra, Du Croz, Hammarling, Duff: A set of level 3 BLAS. 1990."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        xp = arrays.namespace(a, b)
        return xp.astype(xp.astype(a, xp.float32) @ xp.astype(b, xp.float32), xp.float64), Info("float32", gemms=1)
