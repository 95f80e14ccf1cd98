"""Blosc2, which puts bytes of equal weight together before Zstandard: a lossless baseline. C-Blosc2, 2021, through its own package."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.extras import need
from armillary.parameters import parameter

from .pipeline.compressor import Compressor, shape_and_payload, with_shape

#: Bytes of the header of a Blosc2 chunk.
BLOSC_HEAD = 32


@dataclass(frozen=True)
class Blosc2ShuffleZstd(Compressor):
    """Blosc2: bytes of equal weight together, then Zstandard."""

    level: int = parameter(3, "compression level", range=(1, 9))

    lossless = True

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns Blosc2's own frame of an array."""
        blosc2 = need("blosc2")
        filters, codec = [blosc2.Filter.SHUFFLE], blosc2.Codec.ZSTD
        parameters = {
            "codec": codec,
            "clevel": self.level,
            "filters": filters,
            "filters_meta": [0],
            "nthreads": threads,
            "typesize": x.itemsize,
        }
        return with_shape(x, bytes(blosc2.compress2(x.reshape(-1), **parameters)))

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        dtype, shape, payload = shape_and_payload(data, most_bytes)
        blosc2, size = need("blosc2"), math.prod(shape) * dtype.itemsize
        if len(payload) < BLOSC_HEAD or blosc2.get_cbuffer_sizes(payload)[0] != size:
            raise InputError(f"found a Blosc2 frame of another size than the {size:,} bytes of the array")
        return np.frombuffer(blosc2.decompress2(payload, nthreads=threads), dtype).reshape(shape)
