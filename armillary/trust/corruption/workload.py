"""The work: runs of a solver on matrices, or counters that somebody recorded; and what several techniques learn from them, kept once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.arena import Case, NotForThisCase
from armillary.errors import InputError
from armillary.streams import stream

from .classifiers.kinds import Score, learn
from .counters.perf import WINDOW_EVENTS, require
from .detection.features import Wanted
from .detection.folds import LEAST_PAIRS, Fold, elsewhere, in_folds
from .detection.runs import Caches, Faults, Runs, pairs_of, together
from .matrices.built_in import KINDS
from .matrices.csr import Csr

Array = np.ndarray[Any, Any]
#: Rows of a user's matrix at most, since every access to it is modelled.
MOST_ROWS = 1_000_000
#: Every feature.
ALL = Wanted()


@dataclass(eq=False)
class Work:
    """Runs, how they are divided, and how much is spent on learning."""

    runs: Runs
    protocol: str = "folds"
    matrix: Csr | None = None
    kernel: str = ""
    trees: int = 200
    epochs: int = 12
    seed: int = 0
    _folds: dict[Wanted, list[Fold]] = field(default_factory=dict)
    _learned: dict[tuple[str, Wanted], tuple[list[Score], float]] = field(default_factory=dict)

    def folds(self, wanted: Wanted = ALL) -> list[Fold]:
        """The divisions, with these features."""
        if wanted not in self._folds:
            divide = in_folds if self.protocol == "folds" else elsewhere
            self._folds[wanted] = divide(self.runs, wanted, stream(self.seed, "folds"))
        return self._folds[wanted]

    def learned(self, kind: str, wanted: Wanted = ALL) -> tuple[list[Score], float]:
        """(a classifier per fold, seconds of training): whoever asks first waits for it, and its seconds are kept."""
        if (kind, wanted) not in self._learned:
            folds = self.folds(wanted)
            began = time.perf_counter()
            found = [
                learn(kind, fold.teach, int(stream(self.seed, kind, str(number)).integers(1 << 62)), trees=self.trees, epochs=self.epochs)
                for number, fold in enumerate(folds)
            ]
            self._learned[kind, wanted] = found, time.perf_counter() - began
        return self._learned[kind, wanted]


def drawn(case: Case, rng: np.random.Generator) -> Work:
    """Runs on drawn matrices: of one solver on one matrix; or of others to learn from, and of it to be judged on."""
    p = case.parameters
    origins = [(p["kernel"], p["matrix"])]
    if p["protocol"] == "matrix":
        origins = [(p["kernel"], other) for other in p["others"].split(",")] + origins
    if p["protocol"] == "kernel":
        origins = [(other, p["matrix"]) for other in p["others"].split(",")] + origins
    found, last = [], None
    for number, (kernel, kind) in enumerate(origins):
        last = KINDS[kind](p["rows"], rng)
        count = p["pairs"] if number == len(origins) - 1 or len(origins) == 2 else -(-p["pairs"] // (len(origins) - 1))
        caches = Caches(p["l1"], p["l2"], p["llc"])
        found.append(pairs_of(kernel, last, count, faults(p), caches, rng, same=p["inputs"] == "same"))
    runs = found[0] if len(found) == 1 else together(found)
    protocol = "folds" if p["protocol"] == "folds" else "elsewhere"
    return Work(runs, protocol, last, p["kernel"], p["trees"], p["epochs"], case.seed32("learning"))


def own(case: Case, rng: np.random.Generator) -> Work:
    """Runs on a user's matrix, or the user's counters."""
    p = case.parameters
    if isinstance(case.loaded, Runs):
        return Work(case.loaded, seed=case.seed32("learning"))
    try:
        events: tuple[str, ...] = ()
        caches = Caches(p["l1"], p["l2"], p["llc"])
        if p["counters"] == "perf":
            require()
            events = WINDOW_EVENTS
        runs = pairs_of(p["kernel"], case.loaded, p["pairs"], faults(p), caches, rng, same=p["inputs"] == "same", events=events)
    except InputError as error:
        raise NotForThisCase(str(error)) from None
    if len(runs) < 2 * LEAST_PAIRS:
        raise NotForThisCase(f"{runs.lost} of {p['pairs']} faults changed nothing; at least {LEAST_PAIRS} pairs are needed")
    return Work(runs, "folds", case.loaded, p["kernel"], seed=case.seed32("learning"))


def faults(p: Any) -> Faults:
    """How faults are drawn in a case."""
    targets = tuple(str(p["targets"]).split(","))
    return Faults(p["error"], targets, p["fraction"], p["sigma"], p["flips"])


def read(path: Path, counters: str) -> Csr | Runs:
    """A matrix (.mtx, .mtx.gz, .npz), windows of runs (.parquet, .csv), or what `perf stat` wrote (any other ending)."""
    from armillary.files.matrices import read_sparse

    name = path.name.lower()
    if name.endswith((".mtx", ".mtx.gz", ".npz")):
        found = read_sparse(path)
        if found.shape[0] > MOST_ROWS or found.shape[1] > MOST_ROWS:
            raise InputError(f"found {found.shape[0]:,} × {found.shape[1]:,}; expected at most {MOST_ROWS:,} rows", where=str(path))
        return Csr.of(found, str(path))
    if name.endswith((".parquet", ".csv", ".csv.gz", ".csv.zst", ".jsonl")):
        from .readers.windows import read_windows

        return read_windows(path)
    from .readers.perf_stat import read_perf_stat

    return read_perf_stat(path).runs()


