"""QBETS: an upper bound on a quantile of the wait that holds with known confidence, whatever the distribution.

Of n independent waits, the number below the q-quantile is binomial, so the k-th smallest of them is above the quantile with the
probability that a binomial (n, q) is below k. The bound is the smallest such k-th wait. When three waits in a row exceed their bounds,
which is rare unless the queue has changed, the history is cut to the shortest that can give a bound (59 waits for 0.95 and 0.95).

Nurmi, Brevik and Wolski, QBETS: queue bounds estimation from time series, JSSPP 2007. A user is told the bound on the 0.95 quantile; the
point answer that is judged here is the bound on the median, and the interval has bounds on the 0.05 and the 0.95 quantile as its ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.parameters import parameter

from .judging.forecaster import Forecaster, Predicted
from .judging.intervals import CLASS_EDGES, size_class
from .workload import WaitWork

#: Up to this length of history the ranks are exact; beyond it the normal approximation is as good.
EXACT = 1000
LOW, MIDDLE, HIGH = 0.05, 0.5, 0.95


@dataclass(frozen=True)
class Qbets(Forecaster):
    """Binomial bounds on quantiles, per size class."""

    confidence: float = parameter(0.95, "probability with which a bound holds", range=(0.5, 0.999))
    misses: int = parameter(3, "waits in a row beyond their bounds that cut the history; 0 never does", range=(0, 1000))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """Bounds on the median, and on the ends of a 90 % interval."""
        jobs = work.jobs
        low, middle, high = self.bounds(jobs.submit_s, jobs.start_s, size_class(jobs.nodes))
        first = work.tune
        return Predicted(first, middle[first:], low[first:], high[first:])

    def bounds(
        self, submit_s: npt.NDArray[np.float64], start_s: npt.NDArray[np.float64], group: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.float64], ...]:  # fmt: skip
        """(lower bound on the 0.05 quantile, upper bounds on the median and on the 0.95 quantile) at each submission, in seconds.

        Jobs are in the order of submission; a wait is known from its start on.
        """
        n = len(submit_s)
        classes = np.zeros(n, np.int64) if group is None else group
        wait = start_s - submit_s
        sorted_waits = np.sort(wait)
        place = np.argsort(np.argsort(wait, kind="stable"), kind="stable")
        upper = [_upper_ranks(n, level, self.confidence) for level in (MIDDLE, HIGH)]
        ranks = np.stack([_lower_ranks(n, LOW, self.confidence), *upper])
        shortest = max(1, math.ceil(math.log(1.0 - self.confidence) / math.log(HIGH)))
        found = np.zeros((3, n))
        order = np.argsort(start_s, kind="stable")
        _bounds(submit_s, start_s, classes, order, sorted_waits, place, ranks, shortest, self.misses, len(CLASS_EDGES) + 2, found)
        return found[0], found[1], found[2]


def _upper_ranks(most: int, level: float, confidence: float) -> npt.NDArray[np.int64]:
    """k for each length n = 0 … most: the k-th smallest of n waits is above the quantile with this confidence; n where no wait is."""
    from scipy.special import ndtri
    from scipy.stats import binom

    n = np.arange(most + 1)
    exact: npt.NDArray[np.float64] = np.asarray(binom.ppf(confidence, np.maximum(n[: EXACT + 1], 1), level)) + 1
    rough = np.ceil(n * level + ndtri(confidence) * np.sqrt(n * level * (1.0 - level)) + 0.5)
    k = np.concatenate([exact[: most + 1], rough[EXACT + 1 :]]).astype(np.int64)
    return np.minimum(k, n)


def _lower_ranks(most: int, level: float, confidence: float) -> npt.NDArray[np.int64]:
    """k for each n: the k-th smallest of n waits is below the quantile with this confidence; 0 where none is, which stands for 0 s."""
    n = np.arange(most + 1)
    from scipy.special import ndtri
    from scipy.stats import binom

    exact = np.asarray(binom.ppf(1.0 - confidence, np.maximum(n[: EXACT + 1], 1), level))
    rough = np.floor(n * level - ndtri(confidence) * np.sqrt(n * level * (1.0 - level)) - 0.5)
    k = np.concatenate([exact[: most + 1], rough[EXACT + 1 :]]).astype(np.int64)
    return np.clip(k, 0, n)


@loop
def _bounds(submit, start, group, order, values, place, ranks, shortest, misses, classes, out):  # type: ignore[no-untyped-def]
    """Each class keeps its waits in a Fenwick tree over their ranks, so that adding one and finding the k-th takes O(log n).

    The last class holds all jobs and answers for a class without any.
    """
    n = len(submit)
    top = 1
    while 2 * top <= n:
        top *= 2
    tree = np.zeros((classes, n + 1), np.int32)
    history, begin, end = np.zeros((classes, n), np.int64), np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    missed = np.zeros(classes, np.int64)
    a, everyone = 0, classes - 1
    for j in range(n):
        while a < n and start[order[a]] < submit[j]:
            k = order[a]
            a += 1
            for c in (group[k], everyone):
                _add(tree[c], place[k], 1)
                history[c, end[c]] = place[k]
                end[c] += 1
            c = group[k]
            missed[c] = missed[c] + 1 if start[k] - submit[k] > out[2, k] else 0
            if misses > 0 and missed[c] >= misses:
                missed[c] = 0
                while end[c] - begin[c] > shortest:
                    _add(tree[c], history[c, begin[c]], -1)
                    begin[c] += 1
        c = group[j] if end[group[j]] > begin[group[j]] else everyone
        length = end[c] - begin[c]
        for level in range(3):
            k = ranks[level, length]
            out[level, j] = values[_find(tree[c], k, top)] if k > 0 else 0.0


@loop
def _add(tree, place, by):  # type: ignore[no-untyped-def]
    i = place + 1
    while i < len(tree):
        tree[i] += by
        i += i & -i


@loop
def _find(tree, k, top):  # type: ignore[no-untyped-def]
    """The place of the k-th smallest wait."""
    i, step = 0, top
    while step > 0:
        if i + step < len(tree) and tree[i + step] < k:
            i += step
            k -= tree[i]
        step >>= 1
    return i
