"""The methods that every compressor of this arena has: it packs an array within an absolute bound, and unpacks it from the bytes alone."""

from __future__ import annotations

import math
import struct
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError

_DTYPES = (np.dtype("<f4"), np.dtype("<f8"))


class Compressor(Technique):
    """One way to make a field small; frozen dataclasses whose fields are its parameters."""

    #: Whether every bit comes back.
    lossless: ClassVar[bool] = False

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns everything that is needed to get `x` back with |x − x'| ≤ eps."""
        raise NotImplementedError

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """Returns the array, from the bytes alone."""
        raise NotImplementedError


def peer(package: str) -> Any:
    """Imports a peer's package, or raises an InputError that says how to get it."""
    if find_spec(package) is None:
        raise InputError(f'this technique needs the package {package}; install "armillary[bench]"')
    return import_module(package)


def with_shape(x: np.ndarray, payload: bytes) -> bytes:
    """Puts the dtype and shape of an array in front of its payload, for libraries whose streams do not hold them."""
    return struct.pack(f"<BB{x.ndim}Q", _DTYPES.index(x.dtype), x.ndim, *x.shape) + payload


def shape_and_payload(data: bytes) -> tuple[np.dtype, tuple[int, ...], bytes]:
    """Takes apart what `with_shape` put together."""
    if len(data) < 2 or data[0] >= len(_DTYPES) or not 1 <= data[1] <= 4 or len(data) < 2 + 8 * data[1]:
        raise InputError("found no dtype and shape before the payload")
    shape = struct.unpack_from(f"<{data[1]}Q", data, 2)
    if math.prod(shape) > 1 << 40:
        raise InputError(f"found a shape of {math.prod(shape)} values")
    return _DTYPES[data[0]], shape, data[2 + 8 * data[1] :]
