"""Who is trained on what: folds of whole pairs, or training on other matrices and kernels.

Both runs of a pair are always in the same part. Training runs are divided again: two thirds teach, one third chooses the threshold (and,
where there are several candidates, the classifier), because scores of windows that taught are too good. Features are scaled and selected
by the teaching part alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from .features import Wanted, best_columns, features, past_of
from .runs import Runs

Array = np.ndarray[Any, Any]
#: Windows that teach at most.
MOST_ROWS = 2000
#: Clean runs that are judged per fold at least: one alarm among 19 is 5 %.
LEAST_JUDGED = 19
MOST_FOLDS = 10
#: Pairs of runs, of which some teach, some choose and some are judged.
LEAST_PAIRS = 6


@dataclass(frozen=True, eq=False)
class Table:
    """Windows for a classifier: `every` [all windows, features], the windows' numbers, their past [rows, 8] and labels."""

    every: Array
    rows: Array
    past: Array
    labels: Array

    @property
    def x(self) -> Array:
        """[rows, features]."""
        found: Array = self.every[self.rows]
        return found

    @property
    def sequences(self) -> Array:
        """[rows, 8, features]."""
        found: Array = self.every[self.past]
        return found

    def clean(self) -> Table:
        """Its clean windows alone."""
        kept = self.labels == 0
        return Table(self.every, self.rows[kept], self.past[kept], self.labels[kept])


@dataclass(frozen=True, eq=False)
class Fold:
    """One division: tables that teach, that choose the threshold, and that are judged; and the runs in each."""

    teach: Table
    choose: Table
    judge: Table
    teaching: Array
    choosing: Array
    judged: Array
    #: Runs that say what is normal.
    normal: Array
    columns: tuple[str, ...]


def folds_of(pairs: int) -> int:
    """How many folds: as many as leave 19 clean runs in each, from 2 to 10."""
    return max(2, min(MOST_FOLDS, pairs // LEAST_JUDGED))


def in_folds(runs: Runs, wanted: Wanted, rng: np.random.Generator) -> list[Fold]:
    """Folds over the pairs: every run is judged once."""
    pairs = rng.permutation(np.unique(runs.pair))
    if len(pairs) < LEAST_PAIRS:
        raise InputError(f"found {len(pairs)} pairs of runs; expected at least {LEAST_PAIRS}, to teach, to choose and to judge")
    return [_fold(runs, pairs, np.sort(part), wanted, rng) for part in np.array_split(pairs, folds_of(len(pairs)))]


def elsewhere(runs: Runs, wanted: Wanted, rng: np.random.Generator) -> list[Fold]:
    """Teaches on all origins but the last, and judges on that; a third of its clean runs says what is normal there, and is not judged."""
    last = len(runs.names) - 1
    own = rng.permutation(np.unique(runs.pair[runs.origin == last]))
    known, judged = own[: len(own) // 3], own[len(own) // 3 :]
    others = rng.permutation(np.unique(runs.pair[runs.origin != last]))
    return [_fold(runs, np.concatenate([others, known, judged]), judged, wanted, rng, known)]


def _fold(
    runs: Runs, pairs: Array, judged: Array, wanted: Wanted, rng: np.random.Generator, known: Array | None = None
) -> Fold:  # fmt: skip
    """`known` are pairs whose clean runs say what is normal and nothing else."""
    left = pairs[~np.isin(pairs, judged)]
    if known is not None:
        left = left[~np.isin(left, known)]
    choosing, teaching = left[: len(left) // 3], left[len(left) // 3 :]
    normal = teaching if known is None else np.concatenate([teaching, known])
    usual = np.flatnonzero(np.isin(runs.pair, normal) & ~runs.corrupted)
    x, names = features(runs, usual, wanted)
    parts = [np.flatnonzero(np.isin(runs.pair, part)) for part in (teaching, choosing, judged)]
    rows = [rows_of(runs, part) for part in parts]
    taught = rows[0] if len(rows[0]) <= MOST_ROWS else np.sort(rng.choice(rows[0], MOST_ROWS, replace=False))
    labels = runs.corrupted[runs.run_of].astype(np.int64)
    columns = best_columns(x[taught], labels[taught])
    every = np.ascontiguousarray(x[:, columns])
    teach, choose, judge = (Table(every, one, past_of(runs, one), labels[one]) for one in (taught, *rows[1:]))
    return Fold(teach, choose, judge, parts[0], parts[1], parts[2], usual, tuple(names[c] for c in columns))


def rows_of(runs: Runs, numbers: Array) -> Array:
    """The windows of some runs from the fault, or the sham, on."""
    found = [np.arange(runs.first[one] + runs.start[one], runs.first[one + 1]) for one in numbers.tolist()]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
