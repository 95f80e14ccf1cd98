"""Keys and values as the tables hold them: unsigned bits, on 64-byte lines.

A key is 32 or 64 bits: a signed or unsigned integer as it is, a float as its bits after -0.0 became 0.0 and every NaN became the one
of all ones. So equal keys have equal bits, and one kernel serves integers and floats. The two largest patterns, EMPTY and TOMB, mark
free lanes; as keys (-1 and -2 for signed integers, NaN for floats) they live in side slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError

from .probe import LINE

KEY_TYPES = ("uint32", "uint64", "int32", "int64", "float32", "float64")


def as_array(data: Any, where: str) -> np.ndarray:
    """Returns what was given (an array, a list, a Polars or pandas series) as a one-dimensional NumPy array."""
    if hasattr(data, "to_numpy"):
        data = data.to_numpy()
    try:
        found = np.asarray(data)
    except ValueError as error:
        raise InputError(f"found rows of different lengths ({error}); expected a flat array", where=where) from None
    if found.ndim != 1:
        raise InputError(f"found {found.ndim} dimensions; expected one", where=where)
    if not found.size and found.dtype == np.float64 and not isinstance(data, np.ndarray):
        found = found.astype(np.int64)
    return found


def as_keys(data: Any, dtype: np.dtype | None = None, where: str = "keys") -> np.ndarray:
    """Returns keys as an array of one of the six types; with `dtype` they are converted to it exactly or refused."""
    found = as_array(data, where)
    if dtype is not None and found.dtype != dtype:
        return _converted(found, dtype, where)
    if found.dtype.newbyteorder("=") != found.dtype:
        found = found.astype(found.dtype.newbyteorder("="))
    if found.dtype.name not in KEY_TYPES:
        raise InputError(f"found type {found.dtype}; expected {', '.join(KEY_TYPES)}", where=where)
    return found


def _converted(found: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    if not found.size or np.can_cast(found.dtype, dtype, "safe"):
        return found.astype(dtype)
    if found.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        least, most = int(found.min()), int(found.max())
        if limits.min <= least and most <= limits.max:
            return found.astype(dtype)
        raise InputError(f"found {least if least < limits.min else most}; expected values of type {dtype}", where=where)
    if found.dtype.kind in "iuf" and dtype.kind == "f":
        with np.errstate(over="ignore"):
            made = found.astype(dtype)
        if np.array_equal(made.astype(found.dtype), found, equal_nan=found.dtype.kind == "f"):
            return made
        raise InputError(f"found values that {dtype} cannot hold exactly; expected type {dtype}", where=where)
    raise InputError(f"found type {found.dtype}; expected {dtype}", where=where)


def bits_of(keys: np.ndarray) -> np.ndarray:
    """Returns the bits of keys of one of the six types, equal exactly for equal keys, contiguous."""
    width = np.dtype(f"u{keys.dtype.itemsize}")
    if keys.dtype.kind != "f":
        return np.ascontiguousarray(keys).view(width)
    bits: np.ndarray = (keys + keys.dtype.type(0)).view(width)  # -0.0 + 0.0 is 0.0
    bits[np.isnan(keys)] = np.iinfo(width).max
    return bits


def keys_of(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Inverts `bits_of`."""
    return bits.view(dtype)


def as_values(data: Any, length: int, dtype: np.dtype | None = None, where: str = "values") -> np.ndarray:
    """Returns values of 4 or 8 bytes, one for each of `length` keys."""
    found = as_array(data, where)
    if len(found) != length:
        raise InputError(f"found {len(found)} values for {length} keys; expected as many", where=where)
    if dtype is not None and found.dtype != dtype:
        return _converted(found, dtype, where)
    if found.dtype.kind not in "iuf" or found.dtype.itemsize not in (4, 8):
        raise InputError(f"found type {found.dtype}; expected integers or floats of 4 or 8 bytes", where=where)
    return np.ascontiguousarray(found.astype(found.dtype.newbyteorder("="), copy=False))


def row_numbers(start: int, count: int, dtype: np.dtype | None = None) -> np.ndarray:
    """Returns the default values, of 4 bytes while they fit and of 8 beyond."""
    if dtype is None:
        dtype = np.dtype(np.int32 if start + count < 2**31 else np.int64)
    if dtype.kind == "f" or start + count - 1 > np.iinfo(dtype).max:
        raise InputError(f"found no values for keys of a map of {dtype} values; expected values, or a map of row numbers", where="values")
    return np.arange(start, start + count, dtype=dtype)


def as_bits(values: np.ndarray) -> np.ndarray:
    """Returns values as unsigned integers of their width, without a copy."""
    return values.view(f"u{values.dtype.itemsize}")


def aligned(length: int, dtype: Any, fill: int | None = None) -> np.ndarray:
    """Returns an array that begins on a 64-byte line."""
    kind = np.dtype(dtype)
    raw = np.empty(length * kind.itemsize + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    made: np.ndarray = raw[start : start + length * kind.itemsize].view(kind)
    if fill is not None:
        made.fill(fill)
    return made


def empty_of(bits: np.dtype) -> int:
    """Returns EMPTY, which is all ones; TOMB is one less."""
    return int(np.iinfo(bits).max)
