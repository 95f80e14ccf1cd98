"""Compares size and quality of pipelines at several bounds on one field, in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.timing import Stopwatch

from ..pipeline.fz import checked_array, compress, decompress
from ..pipeline.pipeline import Pipeline
from .metrics import errors

if TYPE_CHECKING:
    import polars as pl


def rate_distortion(
    x: Any, pipelines: Sequence[Pipeline | str] = ("default", "quality", "speed"), bounds: Sequence[float] = (1e-2, 1e-3, 1e-4),
    *, mode: str = "rel", threads: int | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Returns one row per pipeline and bound: ratio, bits per value, PSNR, largest error, and the MB/s of one call each way.

    The first call of a pipeline compiles.
    """
    import polars as pl

    array = checked_array(x)
    rows = []
    for pipeline in pipelines:
        for bound in bounds:
            with Stopwatch() as packing:
                data = compress(array, bound, mode, pipeline, threads=threads)
            with Stopwatch() as unpacking:
                back = decompress(data, threads=threads)
            largest, psnr, nrmse = errors(array, back)
            rows.append({
                "pipeline": str(pipeline), "bound": float(bound), "bytes": len(data), "ratio": array.nbytes / len(data),
                "bits_per_value": 8 * len(data) / max(1, array.size), "psnr_dB": psnr, "nrmse": nrmse, "max_error": largest,
                "compress_MBps": array.nbytes / packing.seconds / 1e6, "decompress_MBps": array.nbytes / unpacking.seconds / 1e6,
            })  # fmt: skip
    return pl.DataFrame(rows)
