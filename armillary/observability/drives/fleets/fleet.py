"""A fleet: the days of every drive, with the SMART values of each day and the day on which the drive failed.

Rows are sorted by drive and day. A drive is a model and a serial number, because public logs number drives within a model only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from armillary.errors import InputError

Array = np.ndarray[Any, Any]
#: The failure day of a drive that is not known to have failed.
NEVER = 1 << 30


@dataclass(frozen=True, eq=False)
class Fleet:
    """Drives, their days and their failures.

    Days are counted from `first_date`. `known_until` is the first day whose failures are not known: a drive without a failure is known to
    have worked up to there. `weight` says for how many healthy drives of the real fleet one healthy drive here stands.
    """

    models: tuple[str, ...]
    #: The serial number of each drive, and the number of its model in `models`.
    serial: tuple[str, ...]
    model: Array
    #: Rows `start[i]` to `start[i + 1]` are those of drive i.
    start: Array
    day: Array
    #: The numbers of the SMART attributes, and their raw and normalised values [rows, attributes]; NaN where not reported.
    attributes: Array
    raw: Array
    normal: Array
    #: The day of each drive's failure, or `NEVER`.
    failure: Array
    days: int
    known_until: int
    weight: float = 1.0
    first_date: str = "1970-01-01"
    #: What happened in truth, where the fleet was drawn: mode of failure (-1 healthy) and the first day of its precursor.
    mode: Array | None = None
    onset: Array | None = None
    #: Facts to tell the user, such as drives that failed before their first day in the log.
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        """The number of drives."""
        return len(self.serial)

    @property
    def rows(self) -> int:
        """The number of drive-days."""
        return int(self.start[-1])

    @property
    def drive(self) -> Array:
        """The drive of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @property
    def failed(self) -> Array:
        """Which drives are known to have failed."""
        return self.failure < NEVER

    def name(self, drive: int) -> str:
        """Model and serial number of a drive."""
        return f"{self.models[int(self.model[drive])]}/{self.serial[drive]}"

    def find(self, model: str, serial: str) -> int:
        """The number of a drive."""
        for i, one in enumerate(self.serial):
            if one == serial and self.models[int(self.model[i])] == model:
                return i
        raise InputError(f"found no drive {model}/{serial} among {len(self):,}; expected one of this fleet")

    def date(self, day: int) -> str:
        """The date of a day."""
        return str(np.datetime64(self.first_date) + np.timedelta64(int(day), "D"))

    def until(self, day: int) -> Fleet:
        """What was known when `day` began: rows before it, and failures before it."""
        kept = self._rows(self.day < day)
        return replace(
            kept,
            failure=np.where(kept.failure < day, kept.failure, NEVER),
            days=min(self.days, day),
            known_until=day,
            mode=None,
            onset=None,
        )

    def last(self, days: int) -> Fleet:
        """The last days of the log, and the drives that report in them."""
        return self._rows(self.day >= self.days - days)

    def of(self, drives: Array) -> Fleet:
        """Some of the drives, by number, in rising order."""
        wanted = np.zeros(len(self), bool)
        wanted[drives] = True
        return self._rows(wanted[self.drive])

    def _rows(self, keep: Array) -> Fleet:
        """The rows that are kept, and the drives that have any."""
        drive = self.drive
        counts = np.bincount(drive[keep], minlength=len(self))
        left = np.flatnonzero(counts)
        return replace(
            self, serial=tuple(self.serial[int(i)] for i in left), model=self.model[left],
            start=np.concatenate([[0], np.cumsum(counts[left])]),
            day=self.day[keep], raw=self.raw[keep], normal=self.normal[keep], failure=self.failure[left],
            mode=None if self.mode is None else self.mode[left], onset=None if self.onset is None else self.onset[left],
        )  # fmt: skip


def check(fleet: Fleet, where: str) -> Fleet:
    """Raises InputError unless rows, drives and days fit together; returns the fleet."""
    n = len(fleet)
    if not n or not fleet.rows:
        raise InputError("found no drive with a day; expected some", where=where)
    if len(fleet.start) != n + 1 or fleet.start[0] != 0 or np.any(np.diff(fleet.start) < 1) or fleet.start[-1] != len(fleet.day):
        raise InputError("found rows that do not belong to the drives", where=where)
    same = np.ones(fleet.rows, bool)
    same[fleet.start[:-1]] = False
    steps = np.diff(fleet.day, prepend=0)
    wrong = same & (steps <= 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        which = fleet.name(int(fleet.drive[at]))
        raise InputError(f"found drive {which} twice on {fleet.date(int(fleet.day[at]))}; expected one row per drive and day", where=where)
    if not (int(fleet.model.min()) >= 0 and int(fleet.model.max()) < len(fleet.models)):
        raise InputError("found a drive of an unknown model", where=where)
    return fleet


def assembled(
    models: Sequence[str], model: Array, serial: Sequence[str], drive: Array, day: Array, attributes: Array, raw: Array, normal: Array,
    failure: Array, **facts: Any,
) -> Fleet:  # fmt: skip
    """The fleet of rows in any order: `drive` numbers the drives of `serial`, and drives without a row are dropped."""
    step = np.diff(drive)
    if np.any(step < 0) or np.any((step == 0) & (np.diff(day) < 0)):
        order = np.lexsort((day, drive))
        drive, day, raw, normal = drive[order], day[order], raw[order], normal[order]
    counts = np.bincount(drive, minlength=len(serial))
    left = np.flatnonzero(counts)
    return Fleet(
        models=tuple(models), serial=tuple(serial[int(i)] for i in left), model=np.asarray(model, np.int32)[left],
        start=np.concatenate([[0], np.cumsum(counts[left])]), day=day.astype(np.int32), attributes=np.asarray(attributes, np.int64),
        raw=np.ascontiguousarray(raw), normal=np.ascontiguousarray(normal, np.float32), failure=np.asarray(failure)[left], **facts,
    )  # fmt: skip
