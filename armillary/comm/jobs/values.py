"""Arguments and results between processes, encoded as JSON followed by arrays, so that reading them runs no code.

These values can travel: None, booleans, integers, floats, complex numbers, text, bytes, lists, tuples, dictionaries whose keys are text,
and NumPy scalars and arrays of numbers.
"""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np

from armillary.errors import InputError


def dump(value: Any, what: str = "value") -> bytes:
    """Encode a value: the length of the JSON in eight bytes, the JSON, then the arrays as one .npz file."""
    arrays: list[Any] = []
    text = json.dumps(_out(value, arrays, what)).encode()
    stream = io.BytesIO()
    if arrays:
        np.savez(stream, *arrays, allow_pickle=False)
    return len(text).to_bytes(8, "little") + text + stream.getvalue()


def load(data: bytes) -> Any:
    """Decode a value."""
    length = int.from_bytes(data[:8], "little")
    tree = json.loads(data[8 : 8 + length])
    rest = data[8 + length :]
    if not rest:
        return _back(tree, None)
    with np.load(io.BytesIO(rest), allow_pickle=False) as arrays:
        return _back(tree, arrays)


def _out(value: Any, arrays: list[Any], what: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise InputError(f"{what}: found an array of Python objects; expected numbers")
        arrays.append(array)
        return {"array": len(arrays) - 1, "scalar": isinstance(value, np.generic)}
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
        array = arrays[f"arr_{tree['array']}"]
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
    items = [_back(v, arrays) for v in inner]
    return tuple(items) if kind == "tuple" else items
