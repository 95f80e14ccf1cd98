"""zfp through zfpy, in tolerance mode: blocks of 4^d values, a decorrelating transform, bit planes until the tolerance is met.

Fixed-Rate Compressed Floating-Point Arrays, IEEE TVCG 2014. The peer's own C code. Its error stays well below the tolerance, so look at
PSNR too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .pipeline.compressor import Compressor, peer


@dataclass(frozen=True)
class Zfp(Compressor):
    """zfp by its Python package."""

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns zfp's stream, which says what it holds."""
        return bytes(peer("zfpy").compress_numpy(x, tolerance=eps, write_header=True))

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """Returns the array."""
        found: np.ndarray = peer("zfpy").decompress_numpy(data)
        return found
