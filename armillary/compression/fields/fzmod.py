"""Compressors put together from modules: three pipelines of the same parts.

An error-bounded compressor is a chain: normalise the bound, predict and quantise, count, code, and perhaps a second lossless pass. Each
link is a stage with one interface, so that a pipeline for one data set is one line. `default` is Lorenzo and Huffman; `quality` spline
interpolation, tuned, Huffman and Zstandard; `speed` Lorenzo, bitshuffle and dropped zero blocks.

FZModules: A Heterogeneous Computing Framework for Customizable Scientific Data Compression Pipelines. Skyler Ruiter, Jiannan Tian,
Fengguang Song, arXiv:2509.20563, 2025. Modules after cuSZ (2020), cuSZ-i (2024) and FZ-GPU (2023). Ours: Lorenzo-coded anchors, places
of outliers that follow from the zero codes, violators stored so that the bound holds for every value, the container.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from armillary.arena import Claim, Gain, Kind

from .compressor import Compressor
from .fz import compress, decompress

_SMOOTH = Kind("smooth")
_FUSED = ("fz-fused", "cuszp-fused")


class _Modular(Compressor):
    def stages(self) -> str:
        """The pipeline as a string of stages."""
        raise NotImplementedError

    def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
        """A `.fzm` file."""
        return compress(x, eps, "abs", self.stages(), threads=threads)

    def unpack(self, data: bytes, threads: int = 2) -> np.ndarray:
        """The array."""
        found: np.ndarray = decompress(data, threads=threads)
        return found


@dataclass(frozen=True)
class FzmodDefault(_Modular):
    """range → lorenzo → histogram → huffman, with Zstandard behind it where asked for."""

    radius: int = field(default=512, metadata={"doc": "residuals below it are codes", "range": (2, 32768)})
    secondary: str = field(default="none", metadata={"doc": "a second lossless pass", "choices": ("none", "zstd")})

    claims = (
        Claim(
            "ratio", over="fzmod-speed", by=Gain(ratio=(1.0, None)), on=_SMOOTH, says="ratio default ≥ speed on smooth fields",
            source="arXiv:2509.20563",
        ),
        Claim(
            "compress_MBps", over="fzmod-quality", by=Gain(ratio=(1.0, None)), on=_SMOOTH, stand_in="CPU for the GPU",
            says="default compresses faster than quality on smooth fields", source="arXiv:2509.20563",
        ),
    )  # fmt: skip

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return f"range -> lorenzo(radius={self.radius}) -> histogram -> huffman" + (" -> zstd" if self.secondary == "zstd" else "")


@dataclass(frozen=True)
class FzmodQuality(_Modular):
    """range → interp(tune) → topk-histogram → huffman → zstd."""

    radius: int = field(default=2048, metadata={"doc": "residuals below it are codes", "range": (2, 32768)})
    tune: bool = field(default=True, metadata={"doc": "tune level bounds, splines and order on a sample"})
    level: int = field(default=3, metadata={"doc": "level of Zstandard", "range": (1, 22)})

    claims = (
        Claim(
            "ratio", over="sz3", by=Gain(ratio=(1.0, None)), on=_SMOOTH, honest=(0.85, None), part=0.7,
            why='"similar to" needs a figure: at least 0.85 of SZ3\'s ratio at an equal absolute bound, geometric mean',
            says="rate–distortion similar to higher-fidelity CPU compressors", source="arXiv:2509.20563, abstract",
        ),
        Claim(
            "ratio", over="fzmod-default", by=Gain(ratio=(1.0, None)), on=_SMOOTH, says="ratio quality ≥ default on smooth fields",
            source="arXiv:2509.20563",
        ),
    )  # fmt: skip

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        predict = f"interp(radius={self.radius}, tune={self.tune})"
        return f"range -> {predict} -> topk-histogram(centre={self.radius}) -> huffman -> zstd({self.level})"


@dataclass(frozen=True)
class FzmodSpeed(_Modular):
    """range → lorenzo → bitshuffle → zero-blocks."""

    radius: int = field(default=512, metadata={"doc": "residuals below it are codes", "range": (2, 32768)})

    claims = (
        Claim(
            "compress_MBps", over="fzmod-default", by=Gain(ratio=(1.0, None)), on=_SMOOTH, stand_in="CPU for the GPU",
            says="speed compresses faster than default on smooth fields", source="arXiv:2509.20563",
        ),
        *(
            Claim(
                f"speedup_{link}", over=_FUSED, by=Gain(ratio=(0.9, None)), on=_SMOOTH,
                stand_in="CPU for the GPU, CPU kernels for the fused ones", source="arXiv:2509.20563, abstract",
                says=f"end to end as good as fused kernels, 0.9 of the better one, over a link of {words}",
            )
            for link, words in (("500MBps", "0.5 GB/s"), ("5GBps", "5 GB/s"), ("25GBps", "25 GB/s"))
        ),
    )  # fmt: skip

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return f"range -> lorenzo(radius={self.radius}) -> bitshuffle(centre={self.radius}) -> zero-blocks"


@dataclass(frozen=True)
class FzFused(_Modular):
    """FZ-GPU's pipeline in one kernel: Lorenzo, bitshuffle, zero blocks. HPDC 2023."""

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return "range -> fz-fused"


@dataclass(frozen=True)
class CuszpFused(_Modular):
    """cuSZp in one kernel: blocks of 32 values at a fixed width. SC 2023."""

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return "range -> cuszp-fused"
