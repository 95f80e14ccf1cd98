"""Arguments and results between processes, encoded as JSON followed by the bytes of arrays, so that reading them runs no code.

These values can travel: None, booleans, integers, floats, complex numbers, text, bytes, lists, tuples, dictionaries whose keys are text,
and NumPy scalars and arrays of numbers. What is read comes from another process, so every number in it is compared with what is there.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy

from armillary.errors import InputError

#: The bytes that hold the length of the JSON.
_HEAD = 8
#: The most dimensions of an array.
_MOST_DIMENSIONS = 32


def dump(value: Any, what: str = "value") -> bytes:
    """Encode a value: the length of the JSON in eight bytes, the JSON, then the arrays one after the other."""
    arrays: list[bytes] = []
    text = json.dumps(_out(value, arrays, what)).encode()
    return b"".join([len(text).to_bytes(_HEAD, "little"), text, *arrays])


def load(data: bytes) -> Any:
    """Decode a value. Raises `InputError` for bytes that `dump` did not make."""
    length = int.from_bytes(data[:_HEAD], "little")
    if len(data) < _HEAD or length > len(data) - _HEAD:
        raise InputError(f"value: found {len(data)} bytes that announce {length} of JSON; expected all of them")
    try:
        tree = json.loads(data[_HEAD : _HEAD + length])
        arrays = _Arrays(data, _HEAD + length)
        value = _back(tree, arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, SyntaxError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"value: found bytes that are damaged ({type(error).__name__}); expected an encoded value") from error
    if arrays.at != len(data):
        raise InputError(f"value: found {len(data) - arrays.at} bytes after the arrays; expected none")
    return value


class _Arrays:
    """The arrays behind the JSON, which are read one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        #: Where the next array begins.
        self.at = at

    def next(self, descr: Any, shape: Any, order: Any) -> Any:
        """Return a copy of the next array. Nothing is allocated before its size has been compared with the bytes that are left."""
        dtype = npy.descr_to_dtype(_tuples(descr))
        if dtype.hasobject or not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
            raise InputError("value: found an array that dump does not make; expected numbers in at most 32 dimensions")
        if not all(type(n) is int and n >= 0 for n in shape):
            raise InputError(f"value: found an array of shape {shape}; expected whole numbers of 0 or more")
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes > len(self._data) - self.at:
            raise InputError(f"value: found an array of {nbytes} bytes; expected at most the {len(self._data) - self.at} that are left")
        if not nbytes:
            if count:
                raise InputError("value: found an array whose elements have no bytes; expected some")
            # NumPy refuses to make an array without bytes from a buffer.
            return np.zeros(shape, dtype)
        start, self.at = self.at, self.at + nbytes
        return np.frombuffer(self._data, dtype, count, start).reshape(shape, order=order).copy(order="K")


def _tuples(descr: Any) -> Any:
    """JSON has no tuples, with which NumPy describes the fields of a structured type."""
    if not isinstance(descr, list):
        return descr
    return [
        tuple(_tuples(part) if i == 1 else tuple(part) if isinstance(part, list) else part for i, part in enumerate(field))
        for field in descr
    ]


def _out(value: Any, arrays: list[bytes], what: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise InputError(f"{what}: found an array of Python objects; expected numbers")
        order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        arrays.append(array.tobytes(order))
        described = {"array": npy.dtype_to_descr(array.dtype), "shape": list(array.shape), "order": order}
        return {**described, "scalar": isinstance(value, np.generic)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, list):
        return {"list": [_out(v, arrays, what) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [_out(v, arrays, what) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _out(v, arrays, what) for key, v in value.items()}}
    raise InputError(
        f"{what}: found {type(value).__name__}; expected numbers, text, bytes, arrays, or lists, tuples and dictionaries of these"
    )


def _back(tree: Any, arrays: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        array = arrays.next(tree["array"], tree["shape"], tree["order"])
        return array[()] if tree["scalar"] else array
    kind, inner = next(iter(tree.items()))
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(float.fromhex(inner[0]), float.fromhex(inner[1]))
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "dict":
        return {key: _back(v, arrays) for key, v in inner.items()}
    if kind not in ("list", "tuple") or not isinstance(inner, list):
        raise InputError(f"value: found {kind!r}; expected a list, a tuple, a dictionary, a number or bytes")
    items = [_back(v, arrays) for v in inner]
    return tuple(items) if kind == "tuple" else items
