"""Exact operations: splitting off exponents and putting them back, and integer products without overflow."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from ..errors import InputError
from .kinds import REAL, Array, checked, device_of, dtype_name, namespace

#: The most products of two int8 (at most 2¹⁴ each) whose sum always fits into int32, and whose sum is always exact in float32.
MOST_INNER, FLOAT32_INNER = 131_071, 1_024
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")


def frexp(x: Array) -> tuple[Array, Array]:
    """(mantissa, exponent) with x = mantissa · 2^exponent, 0.5 ≤ |mantissa| < 1 and an int32 exponent.

    Zeros, infinities and NaNs are their own mantissa, with exponent 0. CuPy treats float32 subnormals as zeros.
    """
    kind = checked("frexp", REAL, x=x)
    xp = namespace(x)
    mantissa, exponent = import_module(kind).frexp(x)
    finite = xp.isfinite(x)
    exponent = xp.astype(exponent, xp.int32)
    return xp.where(finite, mantissa, x), xp.where(finite, exponent, xp.zeros_like(exponent))


def ldexp(x: Array, exponent: Array | int) -> Array:
    """x · 2^exponent, rounded once, and therefore exact unless the result overflows or is subnormal. Shapes broadcast.

    CuPy treats float32 subnormals as zeros, in `x` and in the result, because its kernels are compiled like that.
    """
    kind = checked("ldexp", REAL, x=x)
    xp = namespace(x)
    if isinstance(exponent, int):
        exponent = xp.asarray(max(-5000, min(5000, exponent)), dtype=xp.int32, device=device_of(x))
    device_of(x, exponent)
    checked("ldexp", _INTEGERS, exponent=exponent)
    try:
        np.broadcast_shapes(tuple(x.shape), tuple(exponent.shape))
    except ValueError as error:
        raise InputError(
            f"found shapes {tuple(x.shape)} and {tuple(exponent.shape)}; expected shapes that broadcast", where="ldexp"
        ) from error
    # No finite number needs more, because the widest range, that of float64, is from 2^-1074 to 2^1024.
    exponent = xp.astype(xp.clip(xp.astype(exponent, xp.int64), -5000, 5000), xp.int32)
    if kind != "torch":
        with np.errstate(over="ignore", under="ignore"):
            return xp.asarray(import_module(kind).ldexp(x, exponent))
    # PyTorch multiplies by 2.0 ** exponent, which overflows before the result does. Two halves of the exponent never overflow: the first
    # product with the mantissa is exact and normal, so only the second one rounds.
    mantissa, own = frexp(x)
    most = 1100 if dtype_name(x) == "float64" else 200
    whole = xp.clip(exponent + own, -most, most)
    half = whole // 2
    return mantissa * _power_of_two(half, x) * _power_of_two(whole - half, x)


def _power_of_two(exponent: Array, like: Array) -> Array:
    """2^exponent as a PyTorch tensor, built from its bits because the `pow` of a device need not be exact."""
    torch = import_module("torch")
    if dtype_name(like) == "float64":
        return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)
    return ((exponent.to(torch.int32) + 127) << 23).view(torch.float32)


def int8_matmul(a: Array, b: Array) -> Array:
    """The exact int32 product a b of int8 matrices of m×k and k×n, with k at most 131,071 (beyond that int32 may overflow).

    PyTorch uses the int8 units of CUDA devices, with the shapes padded as they require, and of CPUs with VNNI. BLAS has no integer product,
    so elsewhere float32 products of at most 1,024 terms, which are exact because no partial sum exceeds 2²⁴, are added in int32.
    """
    kind = checked("int8_matmul", ("int8",), (2,), a=a, b=b)
    if a.shape[1] != b.shape[0]:
        raise InputError(f"found {a.shape[1]} columns of a and {b.shape[0]} rows of b; expected the same number", where="int8_matmul")
    if a.shape[1] > MOST_INNER:
        raise InputError(
            f"found inner size {a.shape[1]}; expected at most {MOST_INNER}, because int32 may overflow beyond it", where="int8_matmul"
        )
    if kind == "torch" and 0 not in (*a.shape, *b.shape):
        torch = import_module("torch")
        if a.device.type == "cuda":
            return _padded_int_mm(a, b)
        # Without VNNI, the int8 kernels of a CPU may add pairs of products in 16 bits, which saturate.
        if a.device.type == "cpu" and getattr(torch.cpu, "_is_vnni_supported", lambda: False)():
            return torch._int_mm(a, b)
    return _float_blocks(a, b)


def _float_blocks(a: Array, b: Array) -> Array:
    xp, inner = namespace(a), a.shape[1]
    if inner <= FLOAT32_INNER:
        return xp.astype(xp.astype(a, xp.float32) @ xp.astype(b, xp.float32), xp.int32)
    total = xp.zeros((a.shape[0], b.shape[1]), dtype=xp.int32, device=device_of(a))
    for start in range(0, inner, FLOAT32_INNER):
        part = slice(start, start + FLOAT32_INNER)
        total += xp.astype(xp.astype(a[:, part], xp.float32) @ xp.astype(b[part, :], xp.float32), xp.int32)
    return total


def _padded_int_mm(a: Array, b: Array) -> Array:
    """`torch._int_mm`, which on CUDA requires more than 16 rows and multiples of 8 for the other sizes (16 keeps its fast kernels)."""
    torch = import_module("torch")
    (rows, inner), columns = a.shape, b.shape[1]
    more_rows, more_inner, more_columns = max(32 - rows, -rows % 16), -inner % 16, -columns % 16
    if more_rows or more_inner:
        a = torch.nn.functional.pad(a, (0, more_inner, 0, more_rows))
    if more_inner or more_columns:
        b = torch.nn.functional.pad(b, (0, more_columns, 0, more_inner))
    # The units read both factors along the inner index, so b must be stored by columns.
    return torch._int_mm(a.contiguous(), b.T.contiguous().T)[:rows, :columns].contiguous()
