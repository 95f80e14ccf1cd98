"""Zstandard on the bytes as they are: the lossless baseline. RFC 8878, 2021."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .pipeline.compressor import Compressor, shape_and_payload, unpack_zstd, with_shape


@dataclass(frozen=True)
class ZstdAlone(Compressor):
    """Zstandard on the bytes as they are."""

    level: int = parameter(3, "compression level", range=(1, 22))

    lossless = True

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns a frame behind dtype and shape."""
        import zstandard

        return with_shape(x, zstandard.ZstdCompressor(level=self.level, threads=threads).compress(x.tobytes()))

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        dtype, shape, payload = shape_and_payload(data, most_bytes)
        return np.frombuffer(unpack_zstd(payload, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
