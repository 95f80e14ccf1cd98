"""EquilibrIO at fairness 0: a job waits for as long as it would collide, whatever that costs it.

The abstract's figures on slowdown are claims on this end of the dial; the other end is EASY.

EquilibrIO: Taming the I/O Tides in High-Performance Computing, IEEE CLUSTER 2025. The rule is our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .equilibrio import CONTENDED, EquilibrIO

_QUARTER = "our workload, and the paper does not say which quarter"


@dataclass(frozen=True)
class EquilibrIOEager(EquilibrIO):
    """EquilibrIO whose jobs never give in to contention."""

    fairness: float = parameter(0.0, "φ: 0 never lets a wait overrule contention, 1 is EASY", range=(0.0, 1.0))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "io_slowdown", over="easy", by=Gain(percent=(93.75, None)), on=CONTENDED, honest=(85, 99), part=50,
            why="another workload; above 99 % the jobs hardly ran together", says="I/O slowdown falls from 64 % to 4 %", source="abstract",
        ),
        Claim(
            "io_slowdown", over="easy", by=Gain(percent=(50, None)), on=Kind("quarter-random"), honest=(40, None), part=15, why=_QUARTER,
            says="half the slowdown with knowledge of a quarter of the jobs (a random quarter)", source="abstract",
        ),
        Claim(
            "io_slowdown", over="easy", by=Gain(percent=(50, None)), on=Kind("quarter-heaviest"), honest=(40, None), part=15, why=_QUARTER,
            says="half the slowdown with knowledge of a quarter of the jobs (the heaviest quarter)", source="abstract",
        ),
        Claim(
            "io_slowdown", over=("bandwidth-license", "peak-license"), by=Gain(percent=(0, None)), on=CONTENDED,
            says="less slowdown than with a licence", source="ours",
        ),
    )  # fmt: skip
