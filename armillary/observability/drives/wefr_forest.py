"""WEFR: features chosen by five rankings that are merged, for worn and for fresh drives apart, and a random forest on them.

No single ranking is right for every model of drive, so those that disagree with the rest are dropped and the others are averaged; and what
announces the failure of a worn drive is not what announces that of a fresh one, so features are ranked again beyond the wear at which the
rate of failures changes.

General Feature Selection for Failure Prediction in Large-scale SSD Deployment, DSN 2021. The change point is found here by the likelihood
of two rates instead of Bayesian detection: **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.parameters import parameter

from .features.daily import OTHERS, PER_ATTRIBUTE
from .fleets.fleet import Array
from .forest import EVERY
from .judging.lesson import DriveTechnique, Lesson, Rows, Scorer


@dataclass(frozen=True)
class WefrForest(DriveTechnique):
    """Scores a drive-day by a forest on chosen features."""

    trees: int = parameter(100, "trees", range=(1, 5000))
    every: int = parameter(10, EVERY, range=(1, 365))
    by_wear: bool = parameter(True, "whether worn drives get features of their own")

    def learn(self, lesson: Lesson) -> Scorer:
        """Ranks, chooses and grows."""
        from .trees.classical import forest
        from .trees.ranking import change_point

        rows, x, y = lesson.table(self.every)
        place = PER_ATTRIBUTE * len(lesson.fleet.attributes) + len(OTHERS) - 1
        with threadpool_limits(1):
            cut = change_point(x[:, place], y, lesson.days.drive[rows]) if self.by_wear else None
            sides = [np.ones(len(y), bool)] if cut is None else [x[:, place] <= cut, x[:, place] > cut]
            chosen = [self._columns(lesson, x[side], y[side]) for side in sides]
        grown = [
            forest(lesson, every=self.every, trees=self.trees, columns=c, rows=None if cut is None else side)
            for c, side in zip(chosen, sides)
        ]
        predict: list[Any] = [one.predict for one in grown if isinstance(one, Rows)]

        def scores(table: Array) -> Array:
            if cut is None:
                return np.asarray(predict[0](table))
            worn = table[:, place] > cut
            out = np.empty(len(table))
            for side, one in zip((~worn, worn), predict):
                if side.any():
                    out[side] = one(np.ascontiguousarray(table[side]))
            return out

        return Rows(scores, {"wear": cut, "columns": [c.tolist() for c in chosen]})

    def _columns(self, lesson: Lesson, x: Array, y: Array) -> Array:
        from .trees.ranking import enough, merged, rankings

        vary = np.flatnonzero(x.std(0) > 1e-9)
        order, _ = merged(rankings(x[:, vary], y, lesson.seed))
        return np.sort(vary[order[: enough(x[:, vary], y, order)]])
