"""From counters to features: rates against what clean windows of the same origin show at the same place of a run.

A window's counters are taken as logarithms, per iteration and per instruction. From each, the median of clean windows at the same place is
taken away, and the rest divided by the spread of clean windows (median absolute deviation). To these come the differences to the window
before, and by how much the run is longer than clean ones. Large values are shrunk by a logarithm, which changes no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counters.logarithm import log1p, signed_log
from .runs import Runs

Array = np.ndarray[Any, Any]
#: The least spread of a logarithm that counts: a fifth of a percent.
LEAST_SPREAD = 0.002
#: Clean windows at a place of a run, from which on they have a median of their own.
LEAST_CLEAN = 5
#: Features that are kept, and windows in a row that sequence models see.
TOP, PAST = 12, 8
BINS = 8
CACHES = ("l1_loads", "l1_misses", "l2_misses", "llc_misses", "dtlb_misses", "cycles", "task_clock")


@dataclass(frozen=True)
class Wanted:
    """Which features there are."""

    iterations: bool = True
    caches: bool = True
    differences: bool = True


def rates(counters: Array, names: tuple[str, ...], wanted: Wanted) -> tuple[Array, tuple[str, ...]]:
    """Logarithms of the counters, and of all but the instructions per instruction."""
    kept = [i for i, name in enumerate(names) if wanted.caches or name not in CACHES]
    found = log1p(counters[:, kept])
    said = [names[i] for i in kept]
    if "instructions" in said:
        at = said.index("instructions")
        others = [i for i in range(len(said)) if i != at]
        found = np.concatenate([found, found[:, others] - found[:, [at]]], 1)
        said += [f"{said[i]}/instruction" for i in others]
    return found, tuple(said)


@dataclass(frozen=True, eq=False)
class Normal:
    """What clean windows of one origin show: by place in the run the median, the spread over all, and the usual length."""

    median: Array
    spread: Array
    length: float
    length_spread: float

    @classmethod
    def of(cls, rate: Array, index: Array, lengths: Array) -> Normal:
        """Learns from clean windows and the lengths of clean runs."""
        count = np.bincount(index)
        places = max(1, int(np.searchsorted(-count, -LEAST_CLEAN, "right")))
        # The last place stands for all that follow.
        median = np.stack([np.median(rate[index == place if place < places - 1 else index >= place], 0) for place in range(places)])
        off = np.abs(rate - median[np.minimum(index, places - 1)])
        length = float(np.median(lengths))
        length_spread = 1.4826 * float(np.median(np.abs(lengths - length)))
        return cls(median, np.maximum(1.4826 * np.median(off, 0), LEAST_SPREAD), length, max(1.0, length_spread))

    def scores(self, rate: Array, index: Array) -> Array:
        """Robust z-scores of windows."""
        found: Array = (rate - self.median[np.minimum(index, len(self.median) - 1)]) / self.spread
        return found

    def overrun(self, index: Array) -> Array:
        """By how many spreads a run is longer than usual by now."""
        return np.maximum(0.0, (index + 1 - self.length) / self.length_spread)


def features(runs: Runs, clean: Array, wanted: Wanted) -> tuple[Array, tuple[str, ...]]:
    """[windows, features] in float32, normal as the clean runs `clean` (numbers of runs) of the same origin show it."""
    rate, names = rates(runs.counters, runs.columns, wanted)
    run, index = runs.run_of, runs.index
    lengths = np.diff(runs.first)
    found = np.zeros(rate.shape)
    overrun = np.zeros(len(rate))
    for origin in range(len(runs.names)):
        mine = runs.origin[run] == origin
        known = clean[runs.origin[clean] == origin]
        normal_rows = np.isin(run, known)
        normal = Normal.of(rate[normal_rows], index[normal_rows], lengths[known])
        found[mine] = normal.scores(rate[mine], index[mine])
        overrun[mine] = normal.overrun(index[mine])
    columns, said = [signed_log(found)], [*names]
    if wanted.differences:
        before = np.concatenate([found[:1], found[:-1]])
        before[runs.first[:-1]] = found[runs.first[:-1]]
        columns.append(signed_log(found - before))
        said += [f"change of {name}" for name in names]
    if wanted.iterations:
        columns.append(signed_log(overrun)[:, None])
        said.append("windows beyond the usual")
    # A last bit that the order of a sum decides is gone in float32.
    return np.concatenate(columns, 1).astype(np.float32).astype(np.float64), tuple(said)


def information(x: Array, y: Array) -> Array:
    """The mutual information, in nats, of each column, cut into eight parts of equal size, with a label of 0 or 1."""
    found = np.zeros(x.shape[1])
    for c in range(x.shape[1]):
        cuts = np.unique(np.sort(x[:, c])[(np.arange(1, BINS) * len(x)) // BINS])
        part = np.searchsorted(cuts, x[:, c], "left")
        both = np.bincount(2 * part + y, minlength=2 * BINS + 2).reshape(-1, 2) / len(x)
        apart = both.sum(1, keepdims=True) * both.sum(0, keepdims=True)
        held = both > 0
        # log(a / b) by the logarithm that is the same everywhere.
        terms = both[held] * (log1p(both[held] * 1e9) - log1p(apart[held] * 1e9))
        found[c] = float(np.add.accumulate(terms)[-1])
    return np.round(found, 9)


def best_columns(x: Array, y: Array, most: int = TOP) -> Array:
    """The columns that say most about the label, in their own order."""
    return np.sort(np.argsort(-information(x, y), kind="stable")[:most])


def past_of(runs: Runs, rows: Array, length: int = PAST) -> Array:
    """[rows, length]: each window and those before it in its run, the first one repeated where there are too few."""
    begin = runs.first[runs.run_of[rows]]
    return np.maximum(rows[:, None] + np.arange(1 - length, 1), begin[:, None])
