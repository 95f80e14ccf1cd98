"""Windows over the last days of a drive, for networks; and one row per drive and day, for trees and other learners.

A window holds the dense rows that end on a day. Rows that would lie before the drive's first one point to a row of zeros at the end of
the table, whose feature "missing" is 1.
"""

from __future__ import annotations

import numpy as np

from ..fleets.fleet import Array
from ..judging.split import MIN_DAYS
from .daily import PER_ATTRIBUTE, Daily


def ends(days: Daily, first: int, last: int) -> Array:
    """The rows of all drive-days from day `first` to before `last` that have at least `MIN_DAYS` of history."""
    return np.flatnonzero((days.day >= first) & (days.day < last) & (days.history >= MIN_DAYS))


def places(days: Daily, rows: Array, length: int) -> Array:
    """The rows of each window, [windows, length]; the number of all rows stands for a day before the drive's first one."""
    found = rows[:, None] - np.arange(length - 1, -1, -1)[None, :]
    return np.where(found >= days.begin[days.drive[rows]][:, None], found, len(days.day))


def flat(days: Daily, rows: Array, attributes: int) -> Array:
    """One row per drive-day, [rows, features]: the day's features and, per attribute, what happened within 30 days.

    The further ones are the greatest change in a day, how often it changed, the change within 30 days, and how far the normalised value
    stands below its best.
    """
    out = np.empty((len(rows), days.values.shape[1] + 4 * attributes), np.float32)
    block = max(1, 2_000_000 // (30 * max(1, attributes)))
    padded = np.concatenate([days.values, np.zeros((1, days.values.shape[1]), np.float32)])
    for at in range(0, len(rows), block):
        part = rows[at : at + block]
        where = places(days, part, 30)
        here = out[at : at + len(part)]
        here[:, : days.values.shape[1]] = days.values[part]
        start = days.values.shape[1]
        width = PER_ATTRIBUTE * attributes
        changes = np.expm1(padded[:, 1:width:PER_ATTRIBUTE][where])
        here[:, start : start + attributes] = np.log1p(np.maximum(changes.max(1), 0))
        here[:, start + attributes : start + 2 * attributes] = (changes > 0).mean(1)
        here[:, start + 2 * attributes : start + 3 * attributes] = np.log1p(np.maximum(changes, 0).sum(1))
        shown = padded[:, 3:width:PER_ATTRIBUTE]
        here[:, start + 3 * attributes :] = shown[where].max(1) - shown[part]
    return out


def flat_names(days: Daily, attributes: Array) -> tuple[str, ...]:
    """The names of the columns of `flat`."""
    further = [f"{part}_{a}" for part in ("peak", "often", "month", "fall") for a in attributes.tolist()]
    return (*days.names, *further)
