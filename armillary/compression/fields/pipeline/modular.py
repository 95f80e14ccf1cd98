"""Compressors that are made of modules; this is what the pipelines of the same parts share.

An error-bounded compressor is a chain: it normalises the bound, predicts and quantises, counts, codes, and may add a second lossless
pass. Each link is a stage with one interface, so a pipeline for one data set is one line.
"""

from __future__ import annotations

import numpy as np

from .compressor import Compressor
from .fz import compress, decompress


class Modular(Compressor):
    """A compressor that is a pipeline of stages."""

    def stages(self) -> str:
        """Returns the pipeline as a string of stages."""
        raise NotImplementedError

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """Returns a `.fzm` file."""
        return compress(x, eps, "abs", self.stages(), threads=threads)

    def unpack(self, data: bytes, threads: int = 2, *, most_bytes: int | None = None) -> np.ndarray:
        """Returns the array."""
        found: np.ndarray = decompress(data, threads=threads, most_bytes=most_bytes)
        return found
