"""`FZ` and `FZZarr` compress fields in Zarr and in any program that takes numcodecs.

import zarr zarr.create_array("t.zarr", shape=x.shape, dtype=x.dtype, chunks=(64, 64, 64), serializer=FZZarr(mode="rel", bound=1e-3),
compressors=None)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...codec import ArrayCodec, zarr_codec


class FZ(ArrayCodec):
    """Compresses fields within an error bound: `FZ(mode="rel", bound=1e-3)`. A bound `rel` refers to each chunk's own range."""

    codec_id = "armillary.fz"
    defaults: ClassVar[Mapping[str, Any]] = {"mode": "rel", "bound": 1e-3, "pipeline": "default"}

    def validate(self) -> None:
        """Refuses an impossible bound, mode or pipeline."""
        from ..pipeline.pipeline import Pipeline
        from ..stages.bounds import check_bound

        check_bound(self.parameters["mode"], self.parameters["bound"])
        Pipeline.of(self.parameters["pipeline"], self.parameters["mode"])

    def pack(self, x: np.ndarray) -> bytes:
        """Returns a `.fzm` file in memory."""
        from ..pipeline.fz import compress

        return compress(x, self.parameters["bound"], self.parameters["mode"], self.parameters["pipeline"])

    def unpack(self, data: memoryview) -> np.ndarray:
        """Returns the array."""
        from ..pipeline.fz import decompress

        found: np.ndarray = decompress(data, most_bytes=self.most_bytes)
        return found


def __getattr__(name: str) -> Any:
    """Makes `FZZarr` when it is asked for, because it needs zarr, which `FZ` alone does not."""
    if name != "FZZarr":
        raise AttributeError(name)
    globals()[name] = made = zarr_codec(FZ, name)
    return made
