"""The earlier Ozaki scheme on int8 units: a fixed number of digits of 7 bits, each with its sign.

Ootomo, Ozaki, Yokota: DGEMM on Integer Matrix Multiplication Unit. 2024. No look at the exponents: what the digits cannot hold is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary import arrays

from .digit_products import multiply, products
from .method import NOT_FINITE, Info, Method, empty_product, finite
from .native import Native
from .slices import cut


@dataclass(frozen=True)
class Ozaki1Signed(Method):
    """A fixed number of signed 7-bit digits."""

    slices: int = field(default=8, metadata={"doc": "digits of each number", "range": (2, 20)})

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        empty = empty_product(a, b)
        if empty is not None:
            return empty, Info("ozaki1-signed", bound=0.0)
        if not finite(a, b):
            product, info = Native().multiply(a, b)
            return product, Info("ozaki1-signed", fallback=NOT_FINITE, bound=info.bound)
        product = multiply(cut(a, self.slices, signed=True), cut(b.T, self.slices, signed=True))
        return product, Info("ozaki1-signed", products(self.slices), self.slices)
