"""Stores each field in a stream of its own, as numbers, as a dictionary or as text, whichever is smallest, as Parquet does, 2013."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .columnar import Columnar


@dataclass(frozen=True)
class ColumnarTypes(Columnar):
    """Stores each field in a stream of its own: as numbers, as a dictionary or as text, whichever is smallest."""

    compressor: str = parameter("zstd-3", "what compresses each stream")

    typed = True
