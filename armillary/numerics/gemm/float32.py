"""The library's own float32 product, which shows how much accuracy is lost where float32 is thought to be enough.

Dongarra, Du Croz, Hammarling, Duff: A set of level 3 BLAS. 1990.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary import arrays

from .products.method import Info, Method


@dataclass(frozen=True)
class Float32(Method):
    """The factors are rounded to float32, and the product is float64 again. Dongarra, Du Croz, Hammarling, Duff: Level 3 BLAS. 1990."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        xp = arrays.namespace(a, b)
        return xp.astype(xp.astype(a, xp.float32) @ xp.astype(b, xp.float32), xp.float64), Info("float32", gemms=1)
