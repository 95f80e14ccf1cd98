"""Lossless baselines: Zstandard on the bytes as they are, and Blosc2, which shuffles them first.

Zstandard: RFC 8878, 2021. Blosc2: C-Blosc2, 2021, through its own package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .compressor import Compressor, peer, shape_and_payload, with_shape


@dataclass(frozen=True)
class ZstdAlone(Compressor):
    """Zstandard on the bytes as they are."""

    level: int = field(default=3, metadata={"doc": "compression level", "range": (1, 22)})

    lossless = True

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """A frame behind dtype and shape."""
        import zstandard

        return with_shape(x, zstandard.ZstdCompressor(level=self.level, threads=threads).compress(x.tobytes()))

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """The array."""
        import zstandard

        dtype, shape, payload = shape_and_payload(data)
        plain = zstandard.ZstdDecompressor().decompress(payload, max_output_size=math.prod(shape) * dtype.itemsize)
        return np.frombuffer(plain, dtype).reshape(shape)


@dataclass(frozen=True)
class Blosc2ShuffleZstd(Compressor):
    """Blosc2: bytes of equal weight together, then Zstandard."""

    level: int = field(default=3, metadata={"doc": "compression level", "range": (1, 9)})

    lossless = True

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Blosc2's own frame of an array."""
        blosc2 = peer("blosc2")
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

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """The array."""
        dtype, shape, payload = shape_and_payload(data)
        return np.frombuffer(peer("blosc2").decompress2(payload, nthreads=threads), dtype).reshape(shape)
