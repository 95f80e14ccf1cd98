"""FZModules, the default pipeline: Lorenzo prediction and Huffman codes, with Zstandard behind them where asked for.

FZModules: A Heterogeneous Computing Framework for Customizable Scientific Data Compression Pipelines. Skyler Ruiter, Jiannan Tian,
Fengguang Song, arXiv:2509.20563, 2025. The modules follow cuSZ (2020), cuSZ-i (2024) and FZ-GPU (2023).
Ours: Lorenzo-coded anchors, places of outliers that follow from the zero codes, violators stored so that the bound holds for every
value, and the container.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .pipeline.modular import Modular

_SMOOTH = Kind("smooth")


@dataclass(frozen=True)
class FzmodDefault(Modular):
    """range → lorenzo → histogram → huffman, with Zstandard behind it where asked for."""

    radius: int = parameter(512, "residuals below it are codes", range=(2, 32768))
    secondary: str = parameter("none", "a second lossless pass", choices=("none", "zstd"))

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
        """Returns the pipeline as a string of stages."""
        return f"range -> lorenzo(radius={self.radius}) -> histogram -> huffman" + (" -> zstd" if self.secondary == "zstd" else "")
