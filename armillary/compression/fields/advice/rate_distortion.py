"""Size against quality: pipelines at several bounds on one field, as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..pipeline.fz import checked_array, compress, decompress
from ..pipeline.pipeline import Pipeline
from .metrics import errors

if TYPE_CHECKING:
    import polars as pl


def rate_distortion(
    x: Any, pipelines: Sequence[Pipeline | str] = ("default", "quality", "speed"), bounds: Sequence[float] = (1e-2, 1e-3, 1e-4),
    *, mode: str = "rel", threads: int | None = None,
) -> pl.DataFrame:  # fmt: skip
    """One row a pipeline and bound: ratio, bits per value, PSNR, largest error, and MB/s of one call each way (the first call of a
    pipeline compiles)."""
    import polars as pl

    array = checked_array(x)
    rows = []
    for pipeline in pipelines:
        for bound in bounds:
            start = time.perf_counter()
            data = compress(array, bound, mode, pipeline, threads=threads)
            middle = time.perf_counter()
            back = decompress(data, threads=threads)
            end = time.perf_counter()
            largest, psnr, nrmse = errors(array, back)
            rows.append({
                "pipeline": str(pipeline), "bound": float(bound), "bytes": len(data), "ratio": array.nbytes / len(data),
                "bits_per_value": 8 * len(data) / max(1, array.size), "psnr_dB": psnr, "nrmse": nrmse, "max_error": largest,
                "compress_MBps": array.nbytes / (middle - start) / 1e6, "decompress_MBps": array.nbytes / (end - middle) / 1e6,
            })  # fmt: skip
    return pl.DataFrame(rows)
