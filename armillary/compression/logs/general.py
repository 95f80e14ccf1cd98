"""General compressors on the log as it is: the baselines that a better order of fields is measured against.

gzip: RFC 1952, 1996. bzip2: Seward, 1996. Zstandard: RFC 8878, 2021. xz: LZMA2, 2009. Brotli: RFC 7932, 2016. PPMd: Shkarin's variant H,
2002.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .technique import LogTechnique


@dataclass(frozen=True)
class Gzip6(LogTechnique):
    """gzip at its usual level."""

    compressor: str = field(default="gzip-6", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Bzip2(LogTechnique):
    """bzip2 with its largest block: sorts, so that it depends little on a window."""

    compressor: str = field(default="bzip2-9", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Zstd3(LogTechnique):
    """Zstandard at its usual level."""

    compressor: str = field(default="zstd-3", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Zstd19(LogTechnique):
    """Zstandard at its highest usual level."""

    compressor: str = field(default="zstd-19", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Xz6(LogTechnique):
    """xz at its usual level."""

    compressor: str = field(default="xz-6", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Brotli9(LogTechnique):
    """Brotli at level 9."""

    compressor: str = field(default="brotli-9", metadata={"doc": "family and level"})


@dataclass(frozen=True)
class Ppmd(LogTechnique):
    """PPMd, order 6, 16 MiB of model: predicts the next byte from the last six."""

    compressor: str = field(default="ppmd-6", metadata={"doc": "family and order"})
