"""Counters without labels: what is normal is learned from the first half of the windows, and the second half is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import NotForThisCase

from .alarms import begins, held
from .costs import counter_costs
from .features import TOP, features, past_of
from .folds import Fold, Table

if TYPE_CHECKING:
    from ..workload import Work
    from .runs import Runs


def watch(technique: Any, work: Work) -> tuple[float, list[dict[str, Any]], float, tuple[float, float]]:
    """(share of alarming windows, every window of the second half, seconds of training, costs). Needs a detector of novelty."""
    if getattr(technique, "supervised", True) or not hasattr(technique, "wanted"):
        raise NotForThisCase("needs labelled windows")
    runs = work.runs
    fold = halves(runs, technique.wanted)
    work._folds[technique.wanted] = [fold]
    (scorer,), seconds = work.learned(technique.kind, technique.wanted)
    threshold = technique.threshold(runs, fold, scorer(fold.choose))
    score = held(scorer(fold.judge), begins(runs, fold.judge.rows), technique.of_m, technique.of_n)
    alarm = score > threshold
    index = runs.index[fold.judge.rows]
    rows = [
        {"run": int(run), "window": int(at), "score": float(np.maximum(one, -1e9)), "alarm": bool(here)}
        for run, at, one, here in zip(runs.run_of[fold.judge.rows], index, score, alarm)
    ]
    return float(alarm.mean()), rows, seconds, counter_costs(work, scorer, technique.wanted)


def halves(runs: Runs, wanted: Any) -> Fold:
    """A third of the windows teaches, a sixth chooses the threshold, and the second half is judged; columns are the first that vary."""
    count = len(runs.counters)
    if count < 60:
        raise NotForThisCase(f"found {count} windows; without labels at least 60 are needed")
    one = runs_as_one(runs, count // 2)
    x, names = features(one, np.array([0]), wanted)
    teach, choose, judge = np.arange(count // 3), np.arange(count // 3, count // 2), np.arange(count // 2, count)
    spread = x[teach].std(0)
    columns = np.sort(np.argsort(spread <= 1e-9, kind="stable")[:TOP])
    every = np.ascontiguousarray(x[:, columns])
    empty = np.zeros(count, np.int64)
    tables = [Table(every, rows, past_of(runs, rows), empty[rows]) for rows in (teach, choose, judge)]
    none = np.zeros(0, np.int64)
    return Fold(tables[0], tables[1], tables[2], none, none, none, np.array([0]), tuple(names[c] for c in columns))


def runs_as_one(runs: Runs, half: int) -> Runs:
    """The same windows as two runs, of which the first is known to be normal: place in the run does not matter then."""
    from dataclasses import replace

    count, two = len(runs.counters), np.zeros(2, np.int64)
    return replace(
        runs, first=np.array([0, half, count]), pair=two, start=two, corrupted=two == 1, harmed=two == 1, differs=two == 1,
        target=np.array(["", ""]), origin=two, names=("log",),
    )  # fmt: skip
