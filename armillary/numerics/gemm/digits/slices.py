"""Cuts rows of float64, as fixed-point numbers, into int8 digits.

A row is scaled by a power of two to integers below 2^(8s−1) in size, written with s digits of base 256, each from −128 to 127 (balanced,
so that signed int8 units take them): every digit carries 8 bits. Balanced digits end just below 2^(8s−1), so that a row whose largest
number comes near a power of two is scaled to half of that. The earlier scheme has digits of 7 bits and a sign each, −127 to 127.
Digits are taken from the 53-bit significand by shifts, exactly, whatever s is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary import arrays

#: Bits of a float64's significand.
SIGNIFICAND = 53
#: Balanced digits hold 127/255 of their range upwards: a row of larger numbers needs one bit more.
_NEAR_ONE = 254 / 256


@dataclass(frozen=True)
class Digits:
    """Planes of digits, the highest first: x ≈ 2^scale · Σ_p planes[p] · base^(s−1−p), scale along the rows."""

    #: int8, s × rows × columns.
    planes: arrays.Array
    #: int32, the exponent of the lowest digit of each row.
    scale: arrays.Array
    #: Bits of a digit's base: 8 or 7.
    bits: int


def slices_for(span: int) -> int:
    """Returns how many 8-bit digits keep 53 bits of the smallest of the largest terms, for this Exponent Span Capacity."""
    return math.ceil((SIGNIFICAND + max(span, 1) + 1) / 8)


def cut(x: arrays.Array, s: int, signed: bool = False) -> Digits:
    """Returns the rows of `x` (finite float64) in `s` digits: balanced 8-bit ones, or with `signed` of 7 bits with a sign each."""
    xp = arrays.namespace(x)
    mantissa, exponent = arrays.frexp(x)
    # x = whole · 2^(exponent − 53), with a whole number of 53 bits; zeros have exponent 0 and whole 0.
    whole = xp.astype(arrays.ldexp(mantissa, SIGNIFICAND), xp.int64)
    scale = lowest_digit(xp.max(xp.abs(x), axis=1), s, signed)
    shift = exponent - SIGNIFICAND - scale[:, None]
    planes = (_signed if signed else _balanced)(whole, shift, s)
    return Digits(planes, scale, 7 if signed else 8)


def lowest_digit(largest: arrays.Array, s: int, signed: bool) -> arrays.Array:
    """Returns the exponent of the lowest of `s` digits of rows whose largest numbers, in size, are given; int32."""
    xp = arrays.namespace(largest)
    mantissa, top = arrays.frexp(largest)
    if signed:
        return top - 7 * s
    return top - (8 * s - 1) + xp.astype(mantissa >= _NEAR_ONE, xp.int32)


def _balanced(whole: arrays.Array, shift: arrays.Array, s: int) -> arrays.Array:
    xp = arrays.namespace(whole)
    planes = xp.empty((s, *whole.shape), dtype=xp.int8, device=arrays.device_of(whole))
    carry = xp.zeros_like(whole)
    for place in range(s - 1):
        # In two's complement all digits of ⌊whole · 2^shift⌋ but the highest are unsigned bytes.
        digit = (_shifted(whole, shift - 8 * place) & 255) + carry
        carry = xp.astype(digit >= 128, xp.int64)
        planes[s - 1 - place, ...] = xp.astype(digit - 256 * carry, xp.int8)
    planes[0, ...] = xp.astype(_shifted(whole, shift - 8 * (s - 1)) + carry, xp.int8)
    return planes


def _signed(whole: arrays.Array, shift: arrays.Array, s: int) -> arrays.Array:
    xp = arrays.namespace(whole)
    planes = xp.empty((s, *whole.shape), dtype=xp.int8, device=arrays.device_of(whole))
    size, sign = xp.abs(whole), xp.sign(whole)
    for place in range(s):
        planes[s - 1 - place, ...] = xp.astype(sign * (_shifted(size, shift - 7 * place) & 127), xp.int8)
    return planes


def _shifted(whole: arrays.Array, shift: arrays.Array) -> arrays.Array:
    """Returns ⌊whole · 2^shift⌋, right in its lowest 8 bits (a shift to the left by 8 or more leaves none of them)."""
    xp = arrays.namespace(whole)
    shift = xp.astype(shift, xp.int64)
    left = xp.clip(shift, 0, 8)
    right = xp.clip(-shift, 0, 63)
    return (whole << left) >> right
