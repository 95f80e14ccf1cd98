"""Always the strategy that is best on average, as in a library that was tuned once and does not inspect the mesh.

Best is the least mean of log-seconds over the measured table without the case's family, so that a mesh counts by ratios and not by its
size. The single best solver, the usual yardstick of algorithm selection: Rice, The algorithm selection problem, Advances in Computers 15,
1976; Kotthoff, AI Magazine 35, 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .assembling.strategy import STRATEGIES, Problem, Strategy, strategy
from .selecting.choice import shipped_table
from .selecting.selector import Selector
from .selecting.table import Seconds, fold_of


@dataclass(frozen=True)
class AlwaysBestOnAverage(Selector):
    """One strategy for every mesh."""

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        learned = shipped_table().without(fold_of(family))
        return strategy(list(STRATEGIES)[int(np.argmin(learned.log_seconds[:, : len(STRATEGIES)].mean(axis=0)))])
