"""Exponentials that a compiler can turn into vector instructions.

`math.exp` is a call of the C library, one number at a time, and a loop around it stays scalar. These have no branches and no table:
x = k·ln 2 + r with |r| ≤ ½ ln 2, the series of eʳ, and two powers of two made from bits. They are within one unit in the last place of the
C library's, and have the same bits on every processor.
"""

# Inside compiled code an intrinsic takes one argument less than its definition.
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from . import part

__all__ = ["exp", "exp32"]

_LOG2_E = 1.4426950408889634
#: ln 2 in two numbers, of which the first has so few bits that its product with a whole number k is exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: Added to a number below 2⁵¹, this rounds it to a whole one, which then stands in the last bits.
_ROUND = 6755399441055744.0
_SERIES = tuple(1 / math.factorial(n) for n in range(14))
#: Beyond these, the result is zero or infinite.
_LEAST, _MOST = -746.0, 710.0

#: The same for float32, in which Numba keeps a number only if every constant beside it is one.
_LOG2_E_32 = np.float32(1.4426950408889634)
_LN2_HIGH_32, _LN2_LOW_32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
_ROUND_32, _LEAST_32, _MOST_32, _ONE_32 = np.float32(12582912.0), np.float32(-105.0), np.float32(89.0), np.float32(1.0)
_SERIES_32 = tuple(np.float32(1 / math.factorial(n)) for n in range(8))


@intrinsic
def _to_bits(typing_context: Any, x: Any) -> Any:
    """The bits of a float64 as an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def _from_bits(typing_context: Any, bits: Any) -> Any:
    """The float64 that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@intrinsic
def _to_bits_32(typing_context: Any, x: Any) -> Any:
    """The bits of a float32 as an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), generate


@intrinsic
def _from_bits_32(typing_context: Any, bits: Any) -> Any:
    """The float32 that has the last 32 of these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        narrow = builder.trunc(arguments[0], context.get_value_type(types.int32))
        return builder.bitcast(narrow, context.get_value_type(types.float32))

    return types.float32(types.int64), generate


@part
def exp(x):  # type: ignore[no-untyped-def]
    """The exponential of a float64, inside a compiled loop."""
    bounded = min(max(x, _LEAST), _MOST)
    shifted = bounded * _LOG2_E + _ROUND
    whole = shifted - _ROUND
    k = _to_bits(shifted) - _to_bits(_ROUND)
    r = (bounded - whole * _LN2_HIGH) - whole * _LN2_LOW
    s = _SERIES[13] * r + _SERIES[12]
    s = s * r + _SERIES[11]
    s = s * r + _SERIES[10]
    s = s * r + _SERIES[9]
    s = s * r + _SERIES[8]
    s = s * r + _SERIES[7]
    s = s * r + _SERIES[6]
    s = s * r + _SERIES[5]
    s = s * r + _SERIES[4]
    s = s * r + _SERIES[3]
    s = s * r + _SERIES[2]
    s = 1.0 + (r + r * r * s)
    half = k >> 1  # One power of two would not reach the smallest and the largest results.
    found = s * _from_bits((half + 1023) << 52) * _from_bits((k - half + 1023) << 52)
    return found if x == x else x


@part
def exp32(x):  # type: ignore[no-untyped-def]
    """The exponential of a float32, inside a compiled loop."""
    bounded = min(max(x, _LEAST_32), _MOST_32)
    shifted = bounded * _LOG2_E_32 + _ROUND_32
    whole = shifted - _ROUND_32
    k = _to_bits_32(shifted) - _to_bits_32(_ROUND_32)
    r = (bounded - whole * _LN2_HIGH_32) - whole * _LN2_LOW_32
    s = _SERIES_32[7] * r + _SERIES_32[6]
    s = s * r + _SERIES_32[5]
    s = s * r + _SERIES_32[4]
    s = s * r + _SERIES_32[3]
    s = s * r + _SERIES_32[2]
    s = _ONE_32 + (r + r * r * s)
    half = k >> 1
    found = s * _from_bits_32((half + 127) << 23) * _from_bits_32((k - half + 127) << 23)
    return found if x == x else x
