"""Ozaki scheme II computes float64 products through the Chinese remainder theorem, with one int8 product per modulus.

Rows of A and columns of B are scaled by powers of two and cut to integers a', b' so large that 2·Σ|a'||b'| stays below the product P of
the moduli. Residues are int8, their products exact in int32; the remainder theorem gives Σa'b' back, and unscaling gives C. The number of
products grows with the bits, not with their square.

*Fast* scaling takes the bound from the norms of rows and columns (Cauchy-Schwarz), *accurate* from one int8 product of magnitudes that are
rounded up. Ozaki, Uchino, Imamura: Ozaki Scheme II: A GEMM-oriented emulation of floating-point matrix multiplication using an integer
modular technique. 2025.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

from armillary import arrays
from armillary.arrays.exact import MOST_INNER
from armillary.errors import InputError
from armillary.parameters import parameter

from .digits.exponents import exponents
from .digits.looking import look
from .digits.slices import SIGNIFICAND
from .native import Native
from .products.method import NOT_FINITE, UNIT, Info, Method, cuda_kernels, empty_product, finite

#: Pairwise coprime, and small enough that symmetric residues are int8.
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173)
#: Bits of a weight's high part: with a residue of 8 bits and 20 of them, sums stay below 53 bits and are exact.
_HIGH_BITS = 40
#: Keeps bounds from logarithms and norms on the safe side of their rounding.
_SAFE = 1e-6
#: Exponents of rows whose squares are far from the ends of float64's range.
_FAR = 400


@dataclass(frozen=True)
class _Weights:
    """The theorem's constants for the first moduli: Σ residue_t · weight_t is the number, modulo their product."""

    product: int
    high: tuple[float, ...]
    low: tuple[float, ...]
    product_high: float
    product_low: float


@functools.lru_cache(maxsize=32)
def weights(count: int) -> _Weights:
    """Returns the constants for the first `count` moduli."""
    product = math.prod(MODULI[:count])
    whole = [product // p * pow(product // p, -1, p) for p in MODULI[:count]]
    unit = 1 << max(0, product.bit_length() - _HIGH_BITS)
    high = [w // unit * unit for w in whole]
    product_high = product // unit * unit
    return _Weights(
        product,
        tuple(float(w) for w in high),
        tuple(float(w - h) for w, h in zip(whole, high)),
        float(product_high),
        float(product - product_high),
    )


@dataclass(frozen=True)
class Ozaki2(Method):
    """One int8 product for each of some 15 moduli."""

    moduli: int = parameter(0, "the number of moduli; 0 takes as many as the exponents require", range=(0, len(MODULI)))
    scaling: Literal["fast", "accurate"] = parameter(
        "fast", "whether Σ|a||b| is bounded by norms (fast) or by a product of magnitudes (accurate)"
    )

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        empty = empty_product(a, b)
        if empty is not None:
            return empty, Info("ozaki2", bound=0.0)
        kernels: Any = cuda_kernels("cuda_residues", a, b) if a.shape[1] <= MOST_INNER else None
        scales_there = kernels is not None and self.scaling == "fast"
        wide = None if self.moduli else look(a, b)
        if wide is None and not (self.moduli and (scales_there or finite(a, b))):
            return _natively(a, b, None, NOT_FINITE)
        count = self.moduli
        if wide is not None:
            count = moduli_for(wide, a.shape[1])
            if count > len(MODULI):
                return _natively(a, b, wide, f"{count} moduli are needed, {len(MODULI)} known")
        taken = Info("ozaki2", count + (self.scaling == "accurate"), count, wide, bound=_bound(count, wide, a.shape[1]))
        if scales_there:
            product, flags = kernels.product(a, b, MODULI[:count], weights(count), _half(weights(count).product), _SAFE)
            if flags & kernels.NOT_FINITE:
                return _natively(a, b, None, NOT_FINITE)
            if not flags & kernels.FAR:
                return product, taken
        rows, columns = (_accurate if self.scaling == "accurate" else _fast)(a, b, weights(count).product)
        if kernels is not None:
            return kernels.scaled_product(a, b, rows, columns, MODULI[:count], weights(count)), taken
        xp = arrays.namespace(a, b)
        left, right = xp.trunc(arrays.ldexp(a, rows[:, None])), xp.trunc(arrays.ldexp(b, columns[None, :]))
        product = arrays.ldexp(_remainders(left, right, count), -rows[:, None] - columns[None, :])
        return product, taken


def _natively(a: arrays.Array, b: arrays.Array, wide: int | None, why: str) -> tuple[arrays.Array, Info]:
    product, info = Native().multiply(a, b)
    return product, Info("ozaki2", span=wide, fallback=why, bound=info.bound)


def _half(product: int) -> float:
    """Returns the logarithm of what a row's and a column's norm may reach, each, for their sums to stay below product/2."""
    return (math.log2(product) - 1) / 2 - _SAFE


def moduli_for(wide: int, inner: int) -> int:
    """Returns how many moduli keep 53 bits of the largest term of every dot product for this span, or one more than are known."""
    bits = 2 * (SIGNIFICAND + max(wide, 1)) + math.log2(inner) + 4
    return next((n for n in range(2, len(MODULI) + 1) if math.log2(weights(n).product) >= bits), len(MODULI) + 1)


def _bound(count: int, wide: int | None, inner: int) -> float:
    if wide is None:
        return math.inf
    # Each row and column is cut off below 1 where its numbers reach at least √P / (8·√inner).
    return inner * 16 * math.sqrt(inner) / math.sqrt(weights(count).product) * 2.0 ** (wide + 1) / UNIT + 1.0


def integer_product(a: arrays.Array, b: arrays.Array, moduli: int) -> arrays.Array:
    """Returns a·b of whole numbers in float64, exact before one last rounding, through the first `moduli` moduli.

    InputError where 2·Σ|a||b| may reach their product, which would make the answer wrong.
    """
    if not 1 <= moduli <= len(MODULI):
        raise InputError(f"moduli: found {moduli}; expected 1 to {len(MODULI)}")
    xp = arrays.namespace(a, b)
    if not bool(xp.all(xp.trunc(a) == a) & xp.all(xp.trunc(b) == b)):
        raise InputError("found numbers that are not whole; expected whole ones")
    largest = float(xp.max(xp.abs(a) @ xp.abs(b))) * (1 + a.shape[1] * 2 * UNIT) if 0 not in (*a.shape, *b.shape) else 0.0
    if 2 * largest * (1 + _SAFE) >= weights(moduli).product:
        raise InputError(
            f"{moduli} moduli hold sums below {weights(moduli).product / 2:.3g}; found up to {largest:.3g}; expected more moduli"
        )
    return _remainders(a, b, moduli)


def _fast(a: arrays.Array, b: arrays.Array, product: int) -> tuple[arrays.Array, arrays.Array]:
    """Returns exponents for rows and columns so that their scaled norms multiply to less than product/2."""
    xp = arrays.namespace(a, b)
    half = _half(product)

    def room(x: arrays.Array, axis: int) -> arrays.Array:
        top = arrays.frexp(xp.max(xp.abs(x), axis=axis, keepdims=True))[1]
        if bool(xp.any(xp.abs(top) > _FAR)):
            # Numbers are scaled to below 1 first, because squares of large ones would overflow and of small ones vanish.
            x = arrays.ldexp(x, -top)
        else:
            top = xp.zeros_like(top)
        norm = xp.linalg.vector_norm(x, axis=axis)
        logarithm = xp.log2(xp.where(norm == 0, xp.ones_like(norm), norm))
        return xp.astype(xp.floor(half - logarithm - _SAFE), xp.int32) - xp.squeeze(top, axis=axis)

    return room(a, 1), room(b, 0)


def _accurate(a: arrays.Array, b: arrays.Array, product: int) -> tuple[arrays.Array, arrays.Array]:
    """Returns exponents as `_fast` does, with bounds of Σ|a||b| from one product of magnitudes rounded up to at most 64."""
    xp = arrays.namespace(a, b)

    def magnitudes(x: arrays.Array, axis: int) -> tuple[arrays.Array, arrays.Array]:
        top = xp.max(exponents(x), axis=axis, keepdims=True) + 1
        top = xp.where(top < -2000, xp.zeros_like(top), top)
        return xp.astype(xp.ceil(arrays.ldexp(xp.abs(x), 6 - top)), xp.int8), xp.squeeze(top, axis=axis)

    (rounded_a, top_a), (rounded_b, top_b) = magnitudes(a, 1), magnitudes(b, 0)
    sums = xp.zeros((a.shape[0], b.shape[1]), dtype=xp.int64, device=arrays.device_of(a))
    for start in range(0, a.shape[1], MOST_INNER):
        part = slice(start, start + MOST_INNER)
        sums = sums + arrays.int8_matmul(rounded_a[:, part], rounded_b[part])
    logarithms = xp.log2(xp.astype(xp.where(sums < 1, xp.ones_like(sums), sums), xp.float64)) / 2
    half = _half(product)
    # √(row's largest) · √(column's largest) is at least each sum, so that the two exponents together have room for it.
    rows = xp.astype(xp.floor(half - xp.max(logarithms, axis=1) - _SAFE), xp.int32) + 6 - top_a
    columns = xp.astype(xp.floor(half - xp.max(logarithms, axis=0) - _SAFE), xp.int32) + 6 - top_b
    return rows, columns


def _remainders(a: arrays.Array, b: arrays.Array, count: int) -> arrays.Array:
    """Returns Σ a·b of whole numbers below half the moduli's product in size: residues, int8 products, and the theorem."""
    xp = arrays.namespace(a, b)
    constants = weights(count)
    shape, device = (a.shape[0], b.shape[1]), arrays.device_of(a)
    high, low = (xp.zeros(shape, dtype=xp.float64, device=device) for _ in range(2))
    for modulus, weight_high, weight_low in zip(MODULI, constants.high, constants.low):
        left, right = _residues(xp, a, modulus), _residues(xp, b, modulus)
        rest = xp.zeros(shape, dtype=xp.int64, device=device)
        for start in range(0, a.shape[1], MOST_INNER):
            part = slice(start, start + MOST_INNER)
            rest = rest + arrays.int8_matmul(left[:, part], right[part])
        residue = xp.astype(xp.remainder(rest, modulus), xp.float64)
        high, low = high + residue * weight_high, low + residue * weight_low
    times = xp.round((high + low) / float(constants.product))
    return (high - times * constants.product_high) + (low - times * constants.product_low)


def _residues(xp: Any, x: arrays.Array, modulus: int) -> arrays.Array:
    """Returns whole numbers modulo `modulus`, from −modulus/2 on, as int8; exact for any float64, as C's fmod is."""
    rest = xp.remainder(x, modulus)
    return xp.astype(xp.where(rest >= modulus / 2, rest - modulus, rest), xp.int8)
