"""The earlier Ozaki scheme on int8 units, with a fixed number of signed digits of 7 bits.

It does not inspect the exponents, so what the digits cannot hold is lost.

Ootomo, Ozaki, Yokota: DGEMM on Integer Matrix Multiplication Unit. 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary import arrays
from armillary.parameters import parameter

from .digits.digit_products import multiply, products
from .digits.slices import cut
from .native import Native
from .products.method import NOT_FINITE, Info, Method, empty_product, finite


@dataclass(frozen=True)
class Ozaki1Signed(Method):
    """A fixed number of signed 7-bit digits."""

    slices: int = parameter(8, "the number of digits of each number", range=(2, 20))

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        empty = empty_product(a, b)
        if empty is not None:
            return empty, Info("ozaki1-signed", bound=0.0)
        if not finite(a, b):
            product, info = Native().multiply(a, b)
            return product, Info("ozaki1-signed", fallback=NOT_FINITE, bound=info.bound)
        product = multiply(cut(a, self.slices, signed=True), cut(b.T, self.slices, signed=True))
        return product, Info("ozaki1-signed", products(self.slices), self.slices)
