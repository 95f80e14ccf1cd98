"""Readings of one energy domain, and the intervals between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table
from armillary.kernels import kernel
from armillary.runtime.energy.traces.tasks import MOST_NS, Real, Whole

MOST_ROWS = 5_000_000
MOST_JOULES = 1e15


@dataclass(frozen=True)
class Readings:
    """What a meter said of one domain: times in ns, and either cumulative joules or the watts of the time up to the reading.

    A cumulative counter starts anew after `wrap_j` joules. `half_ns` is how far a time may be off: half of what the reading itself took.
    """

    domain: str
    time: Whole
    value: Real
    form: Literal["energy", "power"] = "energy"
    wrap_j: float = 0.0
    half_ns: Whole = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.time)

    def shifted(self, ns: int) -> Readings:
        """The same readings, this much later."""
        return replace(self, time=self.time + ns)

    def steps(self) -> Real:
        """Joules from each reading to the next, with wraps undone; a difference that no wrap explains is an InputError."""
        if self.form == "power":
            return np.asarray(self.value[1:] * (np.diff(self.time) * 1e-9), np.float64)
        steps = np.diff(self.value)
        down = np.flatnonzero(steps < 0)
        for at in down.tolist():
            if not self.wrap_j:
                raise InputError(f"the energy of {one_line(self.domain, 40)} falls from {self.value[at]:g} to {self.value[at + 1]:g} J; "
                                 "expected it to grow, or its --wrap in joules")  # fmt: skip
            if max(self.value[at], self.value[at + 1]) > self.wrap_j:
                raise InputError(f"found {max(self.value[at], self.value[at + 1]):g} J of {one_line(self.domain, 40)}; "
                                 f"expected at most its wrap of {self.wrap_j:g} J")  # fmt: skip
        # The two parts are taken from the wrap apart, so that a small step across it is not lost in the last bits of large numbers.
        steps[down] = (self.wrap_j - self.value[down]) + self.value[down + 1]
        return np.asarray(steps, np.float64)


@dataclass(frozen=True)
class Intervals:
    """Stretches of time, one after another without overlap, with the joules that were read in each."""

    start: Whole
    end: Whole
    energy: Real

    def __len__(self) -> int:
        return len(self.start)

    @property
    def lengths(self) -> Real:
        """Seconds."""
        return np.asarray((self.end - self.start) * 1e-9, np.float64)


def intervals(readings: Readings) -> Intervals:
    """The intervals between consecutive readings; one that is shorter than half the median period, or in which the counter did not
    move, is merged into the next. A rest at the end that never became an interval is left out. Of a power that is read more often than it
    is renewed, the first reading of each value counts.
    """
    if len(readings) < 3:
        raise InputError(f"found {len(readings)} readings of {one_line(readings.domain, 40)}; expected at least 3")
    wrong = np.flatnonzero(np.diff(readings.time) <= 0)
    if wrong.size:
        at = int(wrong[0]) + 1
        raise InputError(f"reading {at + 1} of {one_line(readings.domain, 40)} is at {readings.time[at] * 1e-9:.9g} s, not after the one "
                         "before; expected times that increase")  # fmt: skip
    readings = _renewed(readings)
    steps = readings.steps()
    # A sampled power may stay the same for a while, but a counter that did not move was not renewed.
    stale = steps <= 0 if readings.form == "energy" else np.zeros(len(steps), bool)
    lengths = np.diff(readings.time)
    first = np.empty(len(steps), np.int64)
    last = np.empty(len(steps), np.int64)
    joules = np.empty(len(steps))
    count = int(_merge(lengths, steps, stale, int(np.median(lengths)) // 2, first, last, joules))
    if not count:
        raise InputError(f"the meter of {one_line(readings.domain, 40)} never changes; expected a counter that grows")
    return Intervals(readings.time[first[:count]], readings.time[last[:count] + 1], joules[:count])


def _renewed(readings: Readings) -> Readings:
    """The readings of a power at which it was renewed, if more than half of all repeat the one before; else all of them."""
    same = np.diff(readings.value) == 0
    if readings.form != "power" or 2 * int(same.sum()) <= len(same) or len(same) - int(same.sum()) < 2:
        return readings
    kept = np.append(True, ~same)
    return replace(readings, time=readings.time[kept], value=readings.value[kept], half_ns=np.empty(0, np.int64))


@kernel
def _merge(lengths, steps, stale, least, first, last, joules):  # type: ignore[no-untyped-def]
    count, begun, held, total = 0, 0, 0, 0.0
    for k in range(len(lengths)):
        held += lengths[k]
        total += steps[k]
        if held < least or stale[k]:
            continue
        first[count], last[count], joules[count] = begun, k, total
        count += 1
        begun, held, total = k + 1, 0, 0.0
    return count


def read_readings(path: str | Path, *, wrap_j: float = 0.0) -> dict[str, Readings]:
    """Reads `time_s,domain,energy_j` (cumulative) or `time_s,domain,power_w` as one `Readings` per domain."""
    names = {name.strip().casefold() for name in column_names(path)}
    power = "power_w" in names
    if power == ("energy_j" in names):
        found = "both energy_j and power_w" if power else f"the columns {one_line(', '.join(sorted(names)), 100)}"
        raise InputError(f"found {found}; expected time_s, domain, and energy_j in joules or power_w in watts", where=str(path))
    value = "power_w" if power else "energy_j"
    columns = [
        Column("time_s", least=-MOST_NS * 1e-9, most=MOST_NS * 1e-9, unit="seconds"), Column("domain", "str"),
        Column(value, least=0, most=MOST_JOULES, unit="watts" if power else "joules"),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_ROWS)
    number, domains = table.numbered("domain")
    if len(domains) > 1024:
        raise InputError(f"found {len(domains):,} domains; expected at most 1,024", where=str(path))
    time = np.round(np.asarray(table["time_s"], float) * 1e9).astype(np.int64)
    values = np.asarray(table[value], float)
    made = {}
    for at, domain in enumerate(domains):
        rows = np.flatnonzero(number == at)
        late = np.flatnonzero(np.diff(time[rows]) <= 0)
        if late.size:
            row = int(rows[late[0] + 1])
            raise table.error(row, f'found {time[row] * 1e-9:.9g}, not after the last of domain "{one_line(str(domain), 40)}"', "time_s")
        readings = Readings(str(domain), time[rows], values[rows], "power" if power else "energy", wrap_j)
        try:
            readings.steps()
        except InputError as error:
            raise InputError(error.message, where=str(path)) from None
        made[str(domain)] = readings
    return made
