"""The three ways to order fields (searched, by entropy, at random) in front of each of the other compressors.

CFseq: A Framework for Constructing Compression-Friendly Field Sequences for Network Logs, IEEE CLUSTER 2025. The mechanism is in
`cfseq.py` and `orders.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from armillary.claim import Claim

from .cfseq import CFseq, _claims
from .orders import EntropyOrder, RandomOrder


@dataclass(frozen=True)
class CFseqGzip6(CFseq):
    """CFseq's order for gzip 6."""

    compressor: str = field(default="gzip-6", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("gzip-6")


@dataclass(frozen=True)
class CFseqBzip2(CFseq):
    """CFseq's order for bzip2."""

    compressor: str = field(default="bzip2-9", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("bzip2")


@dataclass(frozen=True)
class CFseqZstd19(CFseq):
    """CFseq's order for Zstandard 19."""

    compressor: str = field(default="zstd-19", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("zstd-19")


@dataclass(frozen=True)
class CFseqXz6(CFseq):
    """CFseq's order for xz 6."""

    compressor: str = field(default="xz-6", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("xz-6")


@dataclass(frozen=True)
class CFseqBrotli9(CFseq):
    """CFseq's order for Brotli 9."""

    compressor: str = field(default="brotli-9", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("brotli-9")


@dataclass(frozen=True)
class CFseqPpmd(CFseq):
    """CFseq's order for PPMd."""

    compressor: str = field(default="ppmd-6", metadata={"doc": "what compresses the reordered log"})

    claims: ClassVar[tuple[Claim, ...]] = _claims("ppmd")


@dataclass(frozen=True)
class EntropyGzip6(EntropyOrder):
    """Ascending entropy in front of gzip 6."""

    compressor: str = field(default="gzip-6", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class EntropyBzip2(EntropyOrder):
    """Ascending entropy in front of bzip2."""

    compressor: str = field(default="bzip2-9", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class EntropyZstd19(EntropyOrder):
    """Ascending entropy in front of Zstandard 19."""

    compressor: str = field(default="zstd-19", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class EntropyXz6(EntropyOrder):
    """Ascending entropy in front of xz 6."""

    compressor: str = field(default="xz-6", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class EntropyBrotli9(EntropyOrder):
    """Ascending entropy in front of Brotli 9."""

    compressor: str = field(default="brotli-9", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class EntropyPpmd(EntropyOrder):
    """Ascending entropy in front of PPMd."""

    compressor: str = field(default="ppmd-6", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomGzip6(RandomOrder):
    """A random order in front of gzip 6."""

    compressor: str = field(default="gzip-6", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomBzip2(RandomOrder):
    """A random order in front of bzip2."""

    compressor: str = field(default="bzip2-9", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomZstd19(RandomOrder):
    """A random order in front of Zstandard 19."""

    compressor: str = field(default="zstd-19", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomXz6(RandomOrder):
    """A random order in front of xz 6."""

    compressor: str = field(default="xz-6", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomBrotli9(RandomOrder):
    """A random order in front of Brotli 9."""

    compressor: str = field(default="brotli-9", metadata={"doc": "what compresses the reordered log"})


@dataclass(frozen=True)
class RandomPpmd(RandomOrder):
    """A random order in front of PPMd."""

    compressor: str = field(default="ppmd-6", metadata={"doc": "what compresses the reordered log"})
