"""One network per model of drive, because a value that is harmless on one model announces failure on another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..features.daily import OTHERS, Daily
from ..fleets.fleet import Array, Fleet

#: A model with fewer training failures shares a network with others.
FEWEST = 30
#: Scaled features are cut here.
MOST = 8.0
#: The name of the partition of every model that has none.
POOL = "*"


def vendor(model: str) -> str:
    """The vendor part of a model's name: "MA" of MA1, "ST" of ST4000DM000, the first word where there are several."""
    first = model.split()[0] if model.split() else model
    found = re.match(r"[A-Za-z]+", first)
    return found.group(0) if found else first


def partitions(fleet: Fleet, failing: Array, divide: bool = True) -> dict[str, tuple[str, ...]]:
    """The name of each partition with its models. `failing` are the drives that fail in training.

    A model with at least 30 failures has its own; the others share one per vendor, and vendors with fewer failures share one further.
    """
    if not divide:
        return {POOL: fleet.models}
    counts = np.bincount(fleet.model[failing], minlength=len(fleet.models))
    found: dict[str, tuple[str, ...]] = {name: (name,) for name, many in zip(fleet.models, counts.tolist()) if many >= FEWEST}
    few = [(name, many) for name, many in zip(fleet.models, counts.tolist()) if many < FEWEST]
    rest: list[str] = []
    for one in sorted({vendor(name) for name, _ in few}):
        mine = [(name, many) for name, many in few if vendor(name) == one]
        if sum(many for _, many in mine) >= FEWEST:
            found[f"{one}{POOL}"] = tuple(name for name, _ in mine)
        else:
            rest += [name for name, _ in mine]
    if rest:
        found[POOL] = tuple(rest)
    return found


def place(model: str, names: Sequence[str]) -> str:
    """The partition of a model that training may not have seen: its vendor's, the pool, or the first one, which had most failures."""
    if model in names:
        return model
    of_vendor = f"{vendor(model)}{POOL}"
    return of_vendor if of_vendor in names else POOL if POOL in names else names[0]


@dataclass(frozen=True, eq=False)
class Scaling:
    """Which features a partition reads, by number, and the median and spread of each in its training days."""

    columns: Array
    median: Array
    spread: Array

    @classmethod
    def fit(cls, days: Daily, rows: Array) -> Scaling:
        """Takes the features that vary. The spread is the interquartile range, or the standard deviation where most values are equal."""
        x = days.values[rows]
        median = np.median(x, 0)
        low, high = np.percentile(x, (25, 75), axis=0)
        deviation = x.std(0)
        columns = np.flatnonzero(deviation > 1e-6)
        spread = np.maximum(high - low, deviation)[columns]
        return cls(columns, median[columns].astype(np.float32), np.maximum(spread, 1e-3).astype(np.float32))

    def rows(self, days: Daily, numbers: Array) -> Array:
        """The scaled features of rows by number; the number of all rows is a day before a drive's first, on which all is missing."""
        outside = numbers == len(days.day)
        out = days.values[np.where(outside, 0, numbers)][:, self.columns]
        out -= self.median
        out /= self.spread
        np.clip(out, -MOST, MOST, out=out)
        if outside.any():
            missing = self.columns == days.values.shape[1] - len(OTHERS)
            out[outside] = np.where(missing, np.clip((1 - self.median) / self.spread, -MOST, MOST), 0)
        return out

    def table(self, days: Daily, drives: Array) -> Array:
        """The scaled features of all rows, zeros for those of other drives, and one row more for days before a drive's first."""
        out = np.zeros((len(days.day) + 1, len(self.columns)), np.float32)
        mine = np.append(np.flatnonzero(np.isin(days.drive, drives)), len(days.day))
        out[mine] = self.rows(days, mine)
        return out
