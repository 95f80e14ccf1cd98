"""The features of a drive on a day: values, how much they changed in a day and in a week, and what was missing.

Each attribute gives four: log(1 + raw value), the logarithms of its change within 1 and 7 days, and the normalised value over 100. A
counter that falls was reset, so what it shows afterwards is what came since. Gaps of up to three days are filled with the value before,
and a feature says so. All days of a drive between its first and last get a row, so that windows can be cut by counting rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from ..fleets.fleet import Array, Fleet

#: Attributes whose raw value rises and falls by nature.
GAUGES = frozenset({1, 3, 7, 190, 194, 195, 197, 206, 231, 232, 245, 250})
#: Attributes whose normalised value is the endurance that is left, the best one first.
WEAR = (233, 177, 173, 202, 231, 230)
PER_ATTRIBUTE = 4
OTHERS = ("missing", "since_report", "history", "wear")
#: Gaps of more days than this between two rows of one drive end its dense days; it then begins anew.
LONGEST_GAP = 60
#: Bytes of the features of one fleet.
MOST_BYTES = 16 << 30


@dataclass(frozen=True, eq=False)
class Daily:
    """Dense rows of features [rows, features] of all drives, in the order of drives and days.

    `end[i]` is the row behind the last one of drive i and `begin[i]` its first; `day` is the day of each row.
    """

    names: tuple[str, ...]
    values: Array
    drive: Array
    day: Array
    begin: Array
    end: Array

    @property
    def history(self) -> Array:
        """How many days of its drive stand before each row, itself included."""
        return np.arange(len(self.day)) - self.begin[self.drive] + 1


def names_of(attributes: Array) -> tuple[str, ...]:
    """The names of the features, in order."""
    parts = [f"{part}_{a}" for a in attributes.tolist() for part in ("value", "day", "week", "normal")]
    return (*parts, *OTHERS)


def daily(fleet: Fleet) -> Daily:
    """The features of every day of every drive."""
    starts, counts = fleet.start[:-1], np.diff(fleet.start)
    first, last = fleet.day[starts], fleet.day[fleet.start[1:] - 1]
    begin_day = _after_gaps(fleet, first)
    sizes = (last - begin_day + 1).astype(np.int64)
    ends = np.cumsum(sizes)
    attributes = fleet.attributes
    width = PER_ATTRIBUTE * len(attributes) + len(OTHERS)
    if int(ends[-1]) * width * 4 > MOST_BYTES:
        raise InputError(f"found {int(ends[-1]):,} drive-days of {width} features; expected at most {MOST_BYTES >> 30} GiB of them")
    out = np.zeros((int(ends[-1]), width), np.float32)
    gauge = np.array([int(a) in GAUGES for a in attributes.tolist()], np.bool_)
    places = {int(a): i for i, a in enumerate(attributes.tolist())}
    wear = np.array([places[a] for a in WEAR if a in places], np.int64)
    packed = np.array([int(a) in (190, 194) for a in attributes.tolist()], np.bool_)
    _fill(
        starts,
        counts,
        fleet.day,
        fleet.raw,
        fleet.normal,
        begin_day.astype(np.int64),
        ends - sizes,
        sizes,
        gauge,
        packed,
        wear,
        np.full(len(attributes), np.nan),
        out,
    )
    drive = np.repeat(np.arange(len(fleet)), sizes)
    day = np.arange(int(ends[-1])) - (ends - sizes)[drive] + begin_day[drive]
    return Daily(names_of(attributes), _logs(out, len(attributes)), drive, day.astype(np.int32), ends - sizes, ends)


def _after_gaps(fleet: Fleet, first: Array) -> Array:
    """The day on which each drive's dense days begin: behind its last gap of more than `LONGEST_GAP` days."""
    drive = fleet.drive
    gap = np.diff(fleet.day, prepend=fleet.day[:1])
    gap[fleet.start[:-1]] = 0
    found = first.astype(np.int64).copy()
    far = gap > LONGEST_GAP
    np.maximum.at(found, drive[far], fleet.day[far].astype(np.int64))
    return found


def _logs(out: Array, attributes: int) -> Array:
    """Signed logarithms of values and changes, in place."""
    part = out[:, : PER_ATTRIBUTE * attributes].reshape(len(out), attributes, PER_ATTRIBUTE)
    for i in range(3):
        x = part[:, :, i]
        part[:, :, i] = np.sign(x) * np.log1p(np.abs(x))
    return out


@kernel
def _fill(starts, counts, days, raw, normal, begin_day, begin, sizes, gauge, packed, wear, known, out):  # type: ignore[no-untyped-def]
    """Fills the dense rows of every drive; values and changes are still plain numbers."""
    attributes = raw.shape[1]
    others = 4 * attributes
    for i in range(starts.shape[0]):
        at = starts[i]
        stop = starts[i] + counts[i]
        while at < stop and days[at] < begin_day[i]:
            at += 1
        since = 0
        for k in range(sizes[i]):
            row = begin[i] + k
            reported = at < stop and days[at] == begin_day[i] + k
            since = 0 if reported else since + 1
            if k == 0:
                known[:] = np.nan
            lacking = 0
            for a in range(attributes):
                value, shown = np.nan, np.float32(np.nan)
                if reported:
                    value, shown = raw[at, a], normal[at, a]
                    if packed[a] and value >= 65536.0:
                        value = value - np.floor(value / 65536.0) * 65536.0
                if value != value:
                    lacking += 1
                    if since <= 3 and known[a] == known[a]:
                        out[row, 4 * a] = known[a]
                else:
                    out[row, 4 * a] = value
                    if known[a] == known[a]:
                        change = value - known[a]
                        if change < 0 and not gauge[a]:
                            change = value
                        out[row, 4 * a + 1] = change
                    known[a] = value
                if shown == shown:
                    out[row, 4 * a + 3] = shown / np.float32(100)
                elif k > 0 and since <= 3:
                    out[row, 4 * a + 3] = out[row - 1, 4 * a + 3]
                week = np.float32(0)
                if gauge[a]:
                    back = row - 7 if k >= 7 else begin[i]
                    if out[row, 4 * a] != 0 and out[back, 4 * a] != 0:
                        week = out[row, 4 * a] - out[back, 4 * a]
                else:
                    for j in range(min(7, k)):
                        week += out[row - j, 4 * a + 1]
                out[row, 4 * a + 2] = week
            out[row, others] = np.float32(lacking) / np.float32(max(1, attributes)) if reported else np.float32(1)
            out[row, others + 1] = np.float32(min(since, 30)) / np.float32(3)
            out[row, others + 2] = np.float32(min(k + 1, 30)) / np.float32(30)
            left = np.float32(1)
            for w in range(wear.shape[0]):
                level = out[row, 4 * wear[w] + 3]
                if level > 0:
                    left = level
                    break
            out[row, others + 3] = np.float32(1) - left
            if reported:
                at += 1
