"""Oracle greedy: Hestia's procedure with the contention model itself as its predictor, on more candidates.

It knows what nobody knows, so it shows what a better predictor could gain, and is no claim's rival. The procedure is that of arXiv
2602.23758 (2026) as we have built it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.arena import Technique, parameter

from .placement.by_tables import TableScheduler
from .placement.scheduler import Scene
from .prediction.predictors import Truth
from .prediction.scores import tables


@dataclass(frozen=True)
class OracleGreedy(Technique):
    """The true model on the best 40 sets of each decision."""

    top: int = parameter(40, "thread sets that are settled in the true model before each decision", range=(1, 10_000))

    oracle = True

    def scheduler(self, scene: Scene, work: Any) -> TableScheduler:
        """The procedure in a scene, with the work's truth."""
        scene.at(scene.hour, work.cpu_at(scene.hour), scene.rps)
        predictor = Truth(work.apps, work.model)
        made = tuple(tables(predictor, scene, len(work.apps), t) for t in scene.fleet.topologies)
        return TableScheduler(scene, predictor, made, top=self.top)
