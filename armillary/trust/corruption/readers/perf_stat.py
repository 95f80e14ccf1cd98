"""What `perf stat -x` writes, with or without `-I`: separated fields without a header.

A line has a time stamp if `-I` was given; a label and a count of processors with `--per-core` and its like, or a processor with `-A`; then
value, unit, event, run time in nanoseconds and percent of the time that the counter ran, and perhaps a variance and a metric with its
unit. How many fields lead is found from the first full line and may not change. perf has already scaled the value of an event that ran
for a part of the time, so it is taken as it stands.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_lines

from ..detection.runs import Runs
from .windows import MOST_COUNTERS, of_windows

Array = np.ndarray[Any, Any]
MISSING = ("<not counted>", "<not supported>")
MOST_LINES, LEAST_RUNNING = 5_000_000, 10.0
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,12})?")
_TIME = re.compile(r"\s*\d{1,12}\.\d{1,12}")
_PERCENT = re.compile(r"\d{1,3}\.\d{1,4}")
_EVENT = re.compile(r"[A-Za-z][\w.:/=,@-]{0,200}")


@dataclass
class PerfStat:
    """The readings of one log: window by window, the value of each event; NaN where it was not counted or hardly ran."""

    events: tuple[str, ...]
    values: Array
    times: Array
    #: Percent of the time for which each reading's counter ran.
    running: Array
    where: str = ""
    facts: dict[str, int] = field(default_factory=dict)

    def runs(self) -> Runs:
        """The windows as one run without labels: events that are missing anywhere are left out, `-` becomes `_`."""
        whole = ~np.asarray(np.isnan(self.values).any(0))
        if not whole.any():
            raise InputError("found no event that was counted in every window; expected one", where=self.where)
        names = tuple(one.replace("-", "_") for one, kept in zip(self.events, whole) if kept)
        return of_windows(np.ascontiguousarray(self.values[:, whole]), np.zeros(len(self.values), np.int64), None, names, self.where)


def read_perf_stat(path: Path, separator: str = "") -> PerfStat:
    """Reads a log; the separator is `;` or `,` or a tab, whichever the first full line has, unless it is given."""
    layout: _Layout | None = None
    order: dict[str, int] = {}
    windows: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for number, line in read_lines(path, limit=1 << 30, most=MOST_LINES):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        if layout is None:
            layout = _Layout.of(line, separator, where)
        found = layout.split(line, where)
        if found is None:
            continue
        stamp, label, event, value, running = found
        if len(order) >= MOST_COUNTERS and event not in order:
            raise InputError(f"found more than {MOST_COUNTERS} events", where=where)
        window = windows.setdefault((stamp, label), {})
        at = order.setdefault(event, len(order))
        if at in window:
            raise InputError(f'found "{one_line(event, 60)}" again at {stamp.strip() or "the same time"}; expected it once', where=where)
        window[at] = value, running
    if not windows:
        raise InputError("found no line of counters; expected what `perf stat -x,` or `perf stat -x;` writes", where=str(path))
    values, ran = np.full((2, len(windows), len(order)), np.nan)
    for row, held in enumerate(windows.values()):
        for at, (value, percent) in held.items():
            values[row, at], ran[row, at] = value if percent >= LEAST_RUNNING else math.nan, percent
    times = np.array([float(stamp) if stamp else 0.0 for stamp, _ in windows])
    return PerfStat(tuple(order), values, times, ran, str(path))


@dataclass(frozen=True)
class _Layout:
    """The separator, the number of leading fields, whether the first of them is a time, and the fields of a full line."""

    separator: str
    leading: int
    timed: bool
    fields: int

    @classmethod
    def of(cls, line: str, separator: str, where: str) -> _Layout:
        for one in (separator,) if separator else (";", ",", "\t"):
            parts = line.split(one)
            for leading in range(4):
                if _full(parts[leading:]):
                    return cls(one, leading, leading > 0 and bool(_TIME.fullmatch(parts[0])), len(parts))
        wanted = "value, unit, event, run time and percentage, as `perf stat -x` writes"
        raise InputError(f'found "{one_line(line, 60)}"; expected {wanted}', where=where)

    def split(self, line: str, where: str) -> tuple[str, str, str, float, float] | None:
        """(time, label, event, value, percent); nothing for a line that carries a metric alone."""
        parts = line.split(self.separator)
        lead, rest = parts[: self.leading], parts[self.leading :]
        if len(rest) > 2 and not any(one.strip() for one in rest[:3]):
            return None
        if self.timed and not _TIME.fullmatch(lead[0]):
            raise InputError(f'found "{one_line(parts[0], 40)}"; expected a time stamp, as in the first line', where=where)
        if self.separator == "," and len(parts) > self.fields and _NUMBER.fullmatch(rest[0]) and _NUMBER.fullmatch(rest[1]):
            raise InputError(f'found "{rest[0]},{rest[1]}"; expected a decimal point (record with -x; or LC_ALL=C)', where=where)
        extra = 0
        if self.separator == ",":
            # The name of an event may hold commas, so it ends where run time and percentage stand.
            while 5 + extra <= len(rest) and not (rest[3 + extra].strip().isdigit() and _PERCENT.fullmatch(rest[4 + extra].strip())):
                extra += 1
        if not _full([*rest[:2], self.separator.join(rest[2 : 3 + extra]), *rest[3 + extra :]]) or len(parts) - extra != self.fields:
            raise InputError(
                f'found {len(parts)} fields, "{one_line(line, 60)}"; expected {self.fields}: {self.leading} leading ones, then value, unit,'
                " event, run time and percentage", where=where,
            )  # fmt: skip
        text, event = rest[0].strip(), self.separator.join(rest[2 : 3 + extra]).strip()
        value = math.nan if text in MISSING else float(text)
        label = self.separator.join(lead[1:] if self.timed else lead)
        return (lead[0] if self.timed else ""), label, event, value, float(rest[4 + extra])


def _full(rest: list[str]) -> bool:
    """Whether fields begin with value, unit, event, run time and percentage."""
    return (
        len(rest) >= 5
        and (rest[0].strip() in MISSING or bool(_NUMBER.fullmatch(rest[0].strip())))
        and not _NUMBER.fullmatch(rest[1].strip() or "-")
        and bool(_EVENT.fullmatch(rest[2].strip()))
        and rest[3].strip().isdigit()
        and len(rest[3].strip()) < 20
        and bool(_PERCENT.fullmatch(rest[4].strip()))
    )  # fmt: skip
