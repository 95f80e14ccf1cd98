"""zfp through zfpy, in tolerance mode: blocks of 4^d values, a decorrelating transform, bit planes until the tolerance is met.

Fixed-Rate Compressed Floating-Point Arrays, IEEE TVCG 2014. The peer's own C code. Its error stays well below the tolerance, so look at
PSNR too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.extras import need

from .pipeline.compressor import Compressor
from .pipeline.container import check_size


@dataclass(frozen=True)
class Zfp(Compressor):
    """zfp by its Python package."""

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns zfp's stream, which says what it holds."""
        return bytes(need("zfpy").compress_numpy(x, tolerance=eps, write_header=True))

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        zfpy = need("zfpy")
        try:
            facts = zfpy.header(data)
            values = math.prod(max(1, int(facts[name])) for name in ("nx", "ny", "nz", "nw"))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"found no zfp header ({error})") from None
        check_size(values, 8, most_bytes, len(data))
        found: np.ndarray = zfpy.decompress_numpy(data)
        return found
