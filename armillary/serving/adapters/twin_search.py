"""Twin-search places like twin-greedy but asks the twin itself at every step, so that nothing learned can be wrong.

It shows what learning costs. Data Driven Optimization of GPU efficiency for Distributed LLM Adapter Serving, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim
from armillary.parameters import parameter

from .engine.distilled import Asked
from .engine.gpu_engine import GpuEngine
from .twin_greedy import Judge, TwinGreedy


@dataclass(frozen=True)
class TwinSearch(TwinGreedy):
    """Places greedily with the twin itself as judge."""

    claims: ClassVar[tuple[Claim, ...]] = ()
    window_s: float = parameter(600.0, "simulated seconds of each question to the twin", range=(30.0, 36000.0))

    def judge_of(self, engine: GpuEngine) -> Judge:
        """Returns the twin."""
        return Asked(engine, self.window_s)
