"""FZModules, the speed pipeline: Lorenzo prediction, bitshuffle, and zero blocks left out.

FZModules: A Heterogeneous Computing Framework for Customizable Scientific Data Compression Pipelines. Skyler Ruiter, Jiannan Tian,
Fengguang Song, arXiv:2509.20563, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .pipeline.modular import Modular

_SMOOTH = Kind("smooth")
_FUSED = ("fz-fused", "cuszp-fused")


@dataclass(frozen=True)
class FzmodSpeed(Modular):
    """range → lorenzo → bitshuffle → zero-blocks."""

    radius: int = parameter(512, "residuals below it are codes", range=(2, 32768))

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
        """Returns the pipeline as a string of stages."""
        return f"range -> lorenzo(radius={self.radius}) -> bitshuffle(centre={self.radius}) -> zero-blocks"
