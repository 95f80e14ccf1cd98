"""ADP makes float64 products from int8 ones with as many digits as *these* matrices need, or in float64 where that is too many.

Each row of A and column of B becomes a fixed-point number in int8 digits; digit products are exact in int32, and enough of them give
float64's accuracy. How many are enough depends on how far exponents spread along the dot products; the Exponent Span Capacity bounds that
from exponents alone. One pass looks for infinities and NaNs and takes the exponents, the span gives the digits, and if they are too many
or there is something that digits cannot hold, the product runs in float64 instead.

From the paper: ESC and its coarse form, unsigned slicing, the decision on the device. Our design: balanced digits for signed int8 units
(rows near a power of two keep a spare bit for the carry), diagonals as one product each, four diagonals to one int64, and blocks that
become finer where zeros hide a dot product. The decision reads 8 bytes back to the host: a library call cannot be predicated.

Guaranteed DGEMM Accuracy While Using Reduced Precision Tensor Cores Through Extensions of the Ozaki Scheme. arXiv 2511.13778.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary import arrays
from armillary.arena import Claim, Gain, Kind, Level
from armillary.arrays.exact import MOST_INNER
from armillary.parameters import parameter
from armillary.timing import Stopwatch

from .digits.digit_products import multiply, products
from .digits.looking import look
from .digits.slices import cut, slices_for
from .native import Native
from .products.method import NOT_FINITE, UNIT, Info, Method, cuda_kernels, empty_product, finite


@dataclass(frozen=True)
class Adp(Method):
    """Uses as many int8 digits as the exponents ask for, and float64 where that is too many."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "modelled_speedup", by=Level(at_least=2.3), on=Kind("gb200"), honest=(1.8, None),
            says="2.3 times the speed of native float64 on GB200 at 55 bits",
            why="rates of data sheets stand for the machine, int8 products at 70 % of theirs",
        ),
        Claim(
            "modelled_speedup", by=Level(at_least=13.2), on=Kind("rtx-pro-6000"), honest=(9.0, None),
            says="13.2 times the speed of native float64 on RTX Pro 6000 at 55 bits",
            why="rates of data sheets stand for the machine, int8 products at 70 % of theirs",
        ),
        Claim(
            "overhead", by=Level(at_most=0.1), on=Kind("gpu", "n8192-up"),
            says="looking and deciding take less than 10 % of the time from 8,192 rows on",
        ),
        Claim(
            "grade", by=Level(at_least=3.0), on=Kind("accuracy"), says="the accuracy of float64, whatever the matrices",
        ),
        Claim(
            "gemms", over="ozaki1-signed", by=Gain(ratio=(36 / 28, None)), on=Kind("plain"),
            says="unsigned slicing saves 8 of 36 products at equal error",
        ),
    )  # fmt: skip

    max_slices: int = parameter(10, "the largest number of digits; where more are needed, the product is float64's own", range=(2, 20))
    slices: int = parameter(0, "a fixed number of digits (7 are 55 bits, 5 are 40); 0 takes what the exponents require", range=(0, 20))
    block: int = parameter(0, "the number of inner indices per block of the coarse span; 0 chooses", range=(0, 4096))

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        empty = empty_product(a, b)
        if empty is not None:
            return empty, Info("adp", bound=0.0)
        found, reason, wide = self.slices, "", None
        with Stopwatch() as looking:
            if not found:
                wide = look(a, b, self.block)
                found = 0 if wide is None else slices_for(wide)
            if wide is None and not (self.slices > 0 and finite(a, b)):
                reason = NOT_FINITE
            elif not self.slices and found > self.max_slices:
                reason = f"{found} slices are needed, {self.max_slices} allowed"
        if reason:
            product, info = Native().multiply(a, b)
            return product, Info("adp", span=wide, fallback=reason, bound=info.bound, overhead_s=looking.seconds)
        kernels = cuda_kernels("cuda_kernels", a, b)
        if kernels is not None and found * a.shape[1] <= MOST_INNER:
            left, right = kernels.cut(a, found, top_first=True), kernels.cut(b.T, found, top_first=False)
            product = kernels.multiply(*left, *right, bits=8)
        else:
            product = multiply(cut(a, found), cut(b.T, found))
        bound = error_bound(a.shape[1], found, wide) if wide is not None else float("inf")
        return product, Info("adp", products(found), found, wide, bound=bound, overhead_s=looking.seconds)


def error_bound(inner: int, s: int, wide: int) -> float:
    """Returns a bound of the error in units of u·(|A||B|): pairs of digits that are left out, digits that are cut off, and the last
    rounding.

    With at least 2^(8s−3) for the largest number of a row, a pair (p, q) of digits is at most 2^14 · 2^(8(2(s−1)−p−q)), and each row and
    column is cut off below 1. The largest possible term is at most 2^(wide+1) times the largest one that is there, and that at most
    (|A||B|)_ij.
    """
    left_out = sum((2 * s - 1 - d) * 2.0 ** (14 + 8 * (2 * (s - 1) - d)) for d in range(s, 2 * s - 1))
    cut_off = 2 * 2.0 ** (8 * s - 2)
    return inner * (left_out + cut_off) / 2.0 ** (2 * (8 * s - 2)) * 2.0 ** (wide + 1) / UNIT + 1.0
