"""A general compressor on the log as it is: the baseline that a better order of fields is measured against.

gzip: RFC 1952, 1996. bzip2 (with its largest block; it sorts, so it depends little on a window): Seward, 1996. Zstandard: RFC 8878, 2021.
xz: LZMA2, 2009. Brotli: RFC 7932, 2016. PPMd (order 6, 16 MiB of model; it predicts the next byte from the last six): Shkarin's variant
H, 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .planning.technique import LogTechnique


@dataclass(frozen=True)
class AsItIs(LogTechnique):
    """Compresses the log in its own order."""

    compressor: str = parameter("zstd-3", "family and level, or family and order")
