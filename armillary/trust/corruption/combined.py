"""Counters first: only where they alarm is a product checked by its sum.

The counters' threshold is low, since a false alarm costs one check and not an intervention; the checksum then decides. It can find no more
than either of the two, and costs less than checking every product if checks are dear.

The counters are those of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025; putting the two together is **our
design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.parameters import parameter

from .detection.alarms import Judged, begins, held, level
from .detection.checks import ABFT
from .detection.technique import AlgorithmDetector

if TYPE_CHECKING:
    from .classifiers.kinds import Score
    from .detection.folds import Fold
    from .workload import Work


@dataclass(frozen=True)
class Combined(AlgorithmDetector):
    """Alarms where a forest over counters suspects a window and the checksum of its products is off."""

    suspected: float = parameter(0.1, "share of clean windows that may be checked", range=(1e-3, 0.9))
    needs: ClassVar[str] = "multiplies"

    def judge(self, work: Work) -> tuple[list[Judged], float]:
        """Scores of the checksum where the counters suspect, and nothing elsewhere."""
        self.check_kernel(work)
        scorers, seconds = work.learned("forest")
        found = []
        for fold, scorer in zip(work.folds(), scorers):
            limit = self._limit(work, fold, scorer)
            suspicious = scorer(fold.judge) > limit
            score = np.where(suspicious, work.runs.checks[fold.judge.rows, ABFT], 0.0)
            found.append(Judged.of(work.runs, fold.judged, fold.judge.rows, score, 1.0, 1, 1))
        return found, seconds

    def _limit(self, work: Work, fold: Fold, scorer: Score) -> float:
        filtered = held(scorer(fold.choose), begins(work.runs, fold.choose.rows), 1, 1)
        return level(filtered[fold.choose.labels == 0], self.suspected)

    def costs(self, work: Work) -> tuple[float, float]:
        """The counters' cost, and that of checking the share of clean windows that is suspected."""
        from .detection.costs import check_costs, counter_costs
        from .detection.features import Wanted

        fold, scorer = work.folds()[0], work.learned("forest")[0][0]
        clean = fold.judge.labels == 0
        share = float((scorer(fold.judge)[clean] > self._limit(work, fold, scorer)).mean()) if clean.any() else 0.0
        both, decision = counter_costs(work, scorer, Wanted())
        check = share * check_costs(work, "abft")
        return both + check, decision + check
