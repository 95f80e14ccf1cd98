"""Thresholds by money: per model of drive, the one at which swapping drives in vain and failures without warning cost least together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from ..fleets.fleet import Array

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Held:
    """What the validation days showed of each drive: whether it fails in time or is healthy, and its best score, right or at all."""

    models: tuple[str, ...]
    model: Array
    fails: Array
    healthy: Array
    right: Array
    any: Array
    days: int


def thresholds(held: Held, usual: float, weight: float, false_swap: float, missed_failure: float) -> pl.DataFrame:
    """One row per model: the threshold, what it finds, misses and flags in vain on the validation days, and the money.

    `cost` is false_swap · (drives flagged in vain, at the natural rate) + missed_failure · (failures without warning). `cost_usual` is that
    of the threshold that maximises F0.5, `cost_without` that of no prediction. An infinite threshold flags nothing.
    """
    import polars as pl

    for name, value in (("false_swap", false_swap), ("missed_failure", missed_failure)):
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"found {value}; expected an amount of money of at least 0", where=name)
    rows = []
    for number, model in enumerate(held.models):
        of = held.model == number
        if not of.any():
            continue
        levels = np.append(np.unique(held.right[of & held.fails & (held.right > -np.inf)]), np.inf)
        costs = np.array([_cost(held, of, level, weight, false_swap, missed_failure) for level in levels])
        # Of equal costs the highest threshold, which disturbs fewest people.
        best = len(levels) - 1 - int(np.argmin(costs[::-1]))
        found, missed, vain = _counts(held, of, levels[best], weight)
        rows.append({
            "model": model, "threshold": float(levels[best]), "found": found, "missed": missed, "flagged_in_vain": vain,
            "cost": float(costs[best]), "cost_usual": _cost(held, of, usual, weight, false_swap, missed_failure),
            "cost_without": missed_failure * int((of & held.fails).sum()), "days": held.days,
        })  # fmt: skip
    return pl.DataFrame(rows)


def _counts(held: Held, of: Array, level: float, weight: float) -> tuple[int, int, float]:
    """(found, missed, flagged in vain at the natural rate)."""
    found = of & held.fails & (held.right >= level)
    vain = of & ~found & (held.any >= level)
    counted = float((vain & ~held.healthy).sum()) + weight * float((vain & held.healthy).sum())
    return int(found.sum()), int((of & held.fails & ~found).sum()), counted


def _cost(held: Held, of: Array, level: float, weight: float, false_swap: float, missed_failure: float) -> float:
    _, missed, vain = _counts(held, of, level, weight)
    return false_swap * vain + missed_failure * missed
