"""The methods that every compressor of this arena has: it packs an array within an absolute bound, and unpacks it from the bytes alone."""

from __future__ import annotations

import math
import struct
from typing import ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError

from .container import check_size

_DTYPES = (np.dtype("<f4"), np.dtype("<f8"))


class Compressor(Technique):
    """One way to make a field small; frozen dataclasses whose fields are its parameters."""

    #: Whether every bit comes back.
    lossless: ClassVar[bool] = False

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns everything that is needed to get `x` back with |x − x'| ≤ eps."""
        raise NotImplementedError

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array, from the bytes alone; more than `most_bytes` bytes are refused, as in `check_size`."""
        raise NotImplementedError


def with_shape(x: np.ndarray, payload: bytes) -> bytes:
    """Puts the dtype and shape of an array in front of its payload, for libraries whose streams do not hold them."""
    return struct.pack(f"<BB{x.ndim}Q", _DTYPES.index(x.dtype), x.ndim, *x.shape) + payload


def shape_and_payload(data: bytes, most_bytes: int | None = None) -> tuple[np.dtype, tuple[int, ...], bytes]:
    """Takes apart what `with_shape` put together; an array of more than `most_bytes` bytes is refused, as in `check_size`."""
    if len(data) < 2 or data[0] >= len(_DTYPES) or not 1 <= data[1] <= 4 or len(data) < 2 + 8 * data[1]:
        raise InputError("found no dtype and shape before the payload")
    shape = struct.unpack_from(f"<{data[1]}Q", data, 2)
    check_size(math.prod(shape), _DTYPES[data[0]].itemsize, most_bytes, len(data))
    return _DTYPES[data[0]], shape, data[2 + 8 * data[1] :]


def unpack_zstd(payload: bytes, size: int) -> bytes:
    """Returns the bytes of a Zstandard frame, of which there must be `size`."""
    import zstandard

    try:
        if zstandard.frame_content_size(payload) == size:
            return zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)
    except zstandard.ZstdError as error:
        raise InputError(f"found damaged Zstandard data ({error})") from None
    raise InputError(f"found a Zstandard frame of another size than the {size:,} bytes of the array")
