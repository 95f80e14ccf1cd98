"""FZModules, the quality pipeline: spline interpolation, tuned on a sample, then Huffman codes and Zstandard.

FZModules: A Heterogeneous Computing Framework for Customizable Scientific Data Compression Pipelines. Skyler Ruiter, Jiannan Tian,
Fengguang Song, arXiv:2509.20563, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .pipeline.modular import Modular

_SMOOTH = Kind("smooth")


@dataclass(frozen=True)
class FzmodQuality(Modular):
    """range → interp(tune) → topk-histogram → huffman → zstd."""

    radius: int = parameter(2048, "residuals below it are codes", range=(2, 32768))
    tune: bool = parameter(True, "tune level bounds, splines and order on a sample")
    level: int = parameter(3, "level of Zstandard", range=(1, 22))

    claims = (
        Claim(
            "ratio", over=("sz3", "zfp"), by=Gain(ratio=(1.0, None)), on=_SMOOTH, honest=(0.85, None), part=0.7,
            why='"similar to" needs a figure: at least 0.85 of the better peer\'s ratio at an equal absolute bound, geometric mean',
            says="rate–distortion similar to higher-fidelity CPU compressors", source="arXiv:2509.20563, abstract",
        ),
        Claim(
            "ratio", over="fzmod-default", by=Gain(ratio=(1.0, None)), on=_SMOOTH, says="ratio quality ≥ default on smooth fields",
            source="arXiv:2509.20563",
        ),
    )  # fmt: skip

    def stages(self) -> str:
        """Returns the pipeline as a string of stages."""
        predict = f"interp(radius={self.radius}, tune={self.tune})"
        return f"range -> {predict} -> topk-histogram(centre={self.radius}) -> huffman -> zstd({self.level})"
