"""SZ3 through pysz: prediction by interpolation or Lorenzo and regression, Huffman, Zstandard.

SZ3: A Modular Framework for Composing Prediction-Based Error-Bounded Lossy Compressors, IEEE Transactions on Big Data 2023. The peer's
own C++ code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.extras import need
from armillary.parameters import parameter

from .pipeline.compressor import Compressor, shape_and_payload, with_shape

ALGORITHMS = ("INTERP_LORENZO", "INTERP", "LORENZO_REG")


@dataclass(frozen=True)
class Sz3(Compressor):
    """SZ3 by its Python package."""

    algorithm: str = parameter("INTERP_LORENZO", "the predictor", choices=ALGORITHMS)
    openmp: bool = parameter(False, "threads of SZ3's own; it then cuts the field, which costs ratio")

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns SZ3's stream behind dtype and shape."""
        pysz = need("pysz")
        config = pysz.szConfig(*x.shape)
        config.errorBoundMode = pysz.szErrorBoundMode.ABS
        config.absErrorBound = eps
        config.cmprAlgo = getattr(pysz.szAlgorithm, self.algorithm)
        config.openmp = self.openmp
        return with_shape(x, pysz.sz.compress(x, config)[0].tobytes())

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        dtype, shape, payload = shape_and_payload(data, most_bytes)
        found: np.ndarray = need("pysz").sz.decompress(np.frombuffer(payload, np.uint8), dtype, shape)[0]
        return found.reshape(shape)
