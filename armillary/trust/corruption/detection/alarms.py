"""When scores of windows become an alarm, and how good the alarms are.

A window alarms if m of the last n windows are above a threshold. A run alarms if one of its windows does. `recall_at_5` takes for every
fold the least threshold at which no more than 5 % of clean runs alarm in the long run: the score that the largest of 19 clean runs has, the
second largest of 39, and so on; with fewer than 19 it is the largest too, which one run in n + 1 exceeds. The threshold is one of runs and
not of windows, since a run of 30 windows that alarms in 5 % of them alarms nearly always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .runs import Runs

Array = np.ndarray[Any, Any]
#: Share of corrupted runs by which precision is weighted.
NATURAL = 0.1


def held(score: Array, begins: Array, m: int, n: int) -> Array:
    """The m-th largest of the last n scores of a run, or -inf while there are fewer than m. begins: whether a window is a run's first."""
    place = np.arange(len(score)) - np.maximum.accumulate(np.where(begins, np.arange(len(score)), 0))
    shifted = np.full((n, len(score)), -np.inf)
    for back in range(n):
        shifted[back, back:] = score[: len(score) - back] if back else score
        shifted[back, place < back] = -np.inf
    found: Array = np.sort(shifted, 0)[n - m]
    return found


@dataclass(frozen=True, eq=False)
class Judged:
    """Scores of the judged windows of one fold, after m of n, and the threshold that the technique would use."""

    runs: Runs
    numbers: Array
    rows: Array
    score: Array
    threshold: float

    @classmethod
    def of(cls, runs: Runs, numbers: Array, rows: Array, score: Array, threshold: float, m: int, n: int) -> Judged:
        """From raw scores."""
        return cls(runs, numbers, rows, held(score, begins(runs, rows), m, n), threshold)

    def highest(self) -> Array:
        """By run, its highest score."""
        return highest(self.runs, self.numbers, self.rows, self.score)


def begins(runs: Runs, rows: Array) -> Array:
    """Whether a window is the first that is judged of its run."""
    run = runs.run_of[rows]
    return np.concatenate([[True], run[1:] != run[:-1]]) if len(run) else np.zeros(0, bool)


def highest(runs: Runs, numbers: Array, rows: Array, score: Array) -> Array:
    """By run, the highest score of its windows."""
    found = np.full(len(runs), -np.inf)
    np.maximum.at(found, runs.run_of[rows], score)
    return found[numbers]


def level(clean: Array, share: float) -> float:
    """The least threshold that a further clean one exceeds with at most this probability; infinite if there are too few."""
    at = int(np.ceil((len(clean) + 1) * (1 - share) - 1e-9))
    return float(np.sort(clean)[at - 1]) if at <= len(clean) else float("inf")


def auc(score: Array, label: Array) -> float:
    """The probability that a corrupted one scores above a clean one, ties counted half."""
    order = np.unique(score, return_inverse=True)[1]
    good, bad = np.bincount(order[label == 0], minlength=order.max() + 1), np.bincount(order[label == 1], minlength=order.max() + 1)
    if not good.sum() or not bad.sum():
        return 0.5
    below = np.cumsum(good) - good
    return float((bad * (below + 0.5 * good)).sum() / (good.sum() * bad.sum()))


def figures(folds: list[Judged]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """(metrics, by run what was seen) over all folds."""
    rows: list[dict[str, Any]] = []
    alarmed_windows = clean_windows = 0
    areas = []
    for fold in folds:
        runs, top = fold.runs, fold.highest()
        bad = runs.corrupted[fold.numbers]
        # Fewer than 19 clean runs cannot bound 5 %; then none of them alarms.
        common = min(level(top[~bad], 0.05), float(top[~bad].max(initial=-np.inf)))
        label = runs.corrupted[runs.run_of[fold.rows]].astype(np.int64)
        alarmed_windows += int((fold.score[label == 0] > fold.threshold).sum())
        clean_windows += int((label == 0).sum())
        areas.append(auc(fold.score, label))
        for number, best in zip(fold.numbers.tolist(), top.tolist()):
            mine = fold.score[runs.run_of[fold.rows] == number]
            late = int(np.argmax(mine > fold.threshold)) if best > fold.threshold else -1
            rows.append({
                "run": number, "corrupted": bool(runs.corrupted[number]), "target": str(runs.target[number]),
                "harmed": bool(runs.harmed[number]), "alarm": best > fold.threshold, "alarm_at_5": best > common,
                "latency": (late + 1) * runs.iterations if late >= 0 else -1,
            })  # fmt: skip
    bad_rows = [row for row in rows if row["corrupted"]]
    targets = sorted({row["target"] for row in bad_rows})
    at_5 = [_share([row["alarm_at_5"] for row in bad_rows if row["target"] == one]) for one in targets]
    recall = _share([row["alarm"] for row in bad_rows])
    false = _share([row["alarm"] for row in rows if not row["corrupted"]])
    right, wrong = NATURAL * recall, (1 - NATURAL) * false
    precision = right / (right + wrong) if right + wrong else 0.0
    harmed = [row for row in bad_rows if row["harmed"]]
    late_ones = [row["latency"] for row in bad_rows if row["latency"] >= 0]
    return {
        "recall_at_5": sum(at_5) / len(at_5) if at_5 else 0.0, "recall": recall, "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "false_alarms": alarmed_windows / max(1, clean_windows), "auc": sum(areas) / len(areas),
        "harm_missed": _share([not row["alarm_at_5"] for row in harmed]),
        "latency": sum(late_ones) / len(late_ones) if late_ones else float("inf"),
    }, rows  # fmt: skip


def by_target(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For every target: runs, recall at 5 % false alarms, harmed runs and those that were missed."""
    found = []
    for target in sorted({row["target"] for row in rows}):
        mine = [row for row in rows if row["corrupted"] and row["target"] == target]
        harmed = [row for row in mine if row["harmed"]]
        found.append({
            "target": target, "corrupted": len(mine), "recall_at_5": _share([row["alarm_at_5"] for row in mine]), "harmed": len(harmed),
            "harm_missed": sum(not row["alarm_at_5"] for row in harmed),
        })  # fmt: skip
    return found


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else 0.0
