"""Zstandard on the bytes as they are: the lossless baseline. RFC 8878, 2021."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .pipeline.compressor import Compressor, shape_and_payload, with_shape


@dataclass(frozen=True)
class ZstdAlone(Compressor):
    """Zstandard on the bytes as they are."""

    level: int = parameter(3, "compression level", range=(1, 22))

    lossless = True

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns a frame behind dtype and shape."""
        import zstandard

        return with_shape(x, zstandard.ZstdCompressor(level=self.level, threads=threads).compress(x.tobytes()))

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """Returns the array."""
        import zstandard

        dtype, shape, payload = shape_and_payload(data)
        plain = zstandard.ZstdDecompressor().decompress(payload, max_output_size=math.prod(shape) * dtype.itemsize)
        return np.frombuffer(plain, dtype).reshape(shape)
