"""The mean wait of the last few jobs of the same size class that started: what a user sees who looks at the queue's recent past.

The size classes are those of Brevik, Nurmi and Wolski, Predicting bounds on queuing delay in space-shared computing environments,
IISWC 2006.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter

from .judging.forecaster import Forecaster, Predicted
from .judging.intervals import CLASS_EDGES, size_class
from .workload import WaitWork


@dataclass(frozen=True)
class RecentMean(Forecaster):
    """The mean over the last `last` starts of the size class; over those of all classes where the class has none."""

    last: int = parameter(20, "starts that are averaged", range=(1, 100_000))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The recent means."""
        jobs = work.jobs
        order = np.argsort(jobs.start_s, kind="stable")
        last = min(self.last, len(jobs))
        found = _means(jobs.submit_s, jobs.start_s, size_class(jobs.nodes), order, last, len(CLASS_EDGES) + 1, np.zeros(len(jobs)))
        return Predicted(work.tune, found[work.tune :])


@loop
def _means(submit, start, group, order, last, classes, out):  # type: ignore[no-untyped-def]
    """Rings of the last waits of each class, and one of all classes."""
    ring, held = np.zeros((classes + 1, last)), np.zeros(classes + 1, np.int64)
    a = 0
    for j in range(len(submit)):
        while a < len(order) and start[order[a]] < submit[j]:
            k = order[a]
            for c in (group[k], classes):
                ring[c, held[c] % last] = start[k] - submit[k]
                held[c] += 1
            a += 1
        c = group[j] if held[group[j]] > 0 else classes
        if held[c] > 0:
            out[j] = ring[c, : min(held[c], last)].mean()
    return out
