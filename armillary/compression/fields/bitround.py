"""Rounds to as few mantissa bits as the bound allows, shuffles the bytes and applies Zstandard, as many archives do.

Compressing atmospheric data into its real information content, Nature Computational Science 2021, rounds to a fixed number of bits;
here each value is rounded to a multiple of the largest power of two that is at most 2ε, which is the fewest bits for an absolute bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .pipeline.compressor import Compressor, shape_and_payload, unpack_zstd, with_shape


@dataclass(frozen=True)
class BitroundZstd(Compressor):
    """Rounds, shuffles bytes and applies Zstandard."""

    level: int = parameter(3, "level of Zstandard", range=(1, 22))

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns a Zstandard frame behind dtype and shape."""
        import zstandard

        step = 2.0 ** math.floor(math.log2(2 * eps))
        rounded = np.ascontiguousarray((np.rint(x / x.dtype.type(step)) * x.dtype.type(step)).astype(x.dtype))
        # Where rounding itself rounds (values of 2^24 steps and more), the value is kept.
        rounded = np.where(np.abs(x.astype(np.float64) - rounded) <= eps, rounded, x).reshape(-1)
        planes = rounded.view(np.uint8).reshape(x.size, x.dtype.itemsize).T
        return with_shape(x, zstandard.ZstdCompressor(level=self.level, threads=threads).compress(np.ascontiguousarray(planes).tobytes()))

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        dtype, shape, payload = shape_and_payload(data, most_bytes)
        planes = np.frombuffer(unpack_zstd(payload, math.prod(shape) * dtype.itemsize), np.uint8)
        return np.ascontiguousarray(planes.reshape(dtype.itemsize, -1).T).view(dtype).reshape(shape)
