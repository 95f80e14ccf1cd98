"""One domain of a run as a model sees it: the energy of each interval, and how long each type ran in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from armillary.errors import InputError, one_line
from armillary.runtime.energy.meters.readings import Intervals, Readings, intervals
from armillary.runtime.energy.traces.tasks import Real, TaskTrace

from .overlap import overlaps

IDLE = "idle"


@dataclass(frozen=True)
class Observed:
    """E_k and A[k, j] of one domain. Columns are types (with `@kind` where workers of several kinds run them), transfers, and idle.

    `seconds` are worker-seconds, of shape (intervals, columns); the columns of types and idle sum to `workers` times the length. `rates`
    are flops and bytes per second of each column, or None where the trace does not say them.
    """

    columns: tuple[str, ...]
    seconds: Real
    lengths: Real
    energy: Real
    workers: int
    #: Whether a column is a type that keeps a worker busy; transfers and idle are not.
    busy: tuple[bool, ...]
    rates: tuple[Real, Real] | None = None

    @property
    def idle(self) -> int:
        """The number of the idle column."""
        return len(self.columns) - 1

    def rows(self, chosen: np.ndarray) -> Observed:
        """Some of the intervals."""
        return Observed(self.columns, self.seconds[chosen], self.lengths[chosen], self.energy[chosen], self.workers, self.busy, self.rates)


@dataclass(frozen=True)
class Metered:
    """One domain of a run: the trace, the meter's readings, and the numbers of the domain's workers."""

    trace: TaskTrace
    readings: Readings
    workers: tuple[int, ...]
    #: Intervals that are looked at, where not all are.
    chosen: tuple[int, ...] | None = field(default=None, compare=False)

    @cached_property
    def intervals(self) -> Intervals:
        """The meter's intervals that lie within the trace's span."""
        found = intervals(self.readings)
        low, high = self.trace.span
        inside = (found.start >= low) & (found.end <= high)
        if not inside.any():
            spans = ((self.trace.span, "the trace"), ((int(found.start[0]), int(found.end[-1])), "the readings"))
            said = " and ".join(f"{what} from {a * 1e-9:.9g} to {b * 1e-9:.9g} s" for (a, b), what in spans)
            raise InputError(f"found {said}; expected readings between the first start and the last end of the trace")
        return Intervals(found.start[inside], found.end[inside], found.energy[inside])

    @cached_property
    def observed(self) -> Observed:
        """The system as the published model builds it."""
        return self.observe()

    def observe(self, lag_ns: int = 0, window_s: float = 0.0) -> Observed:
        """The system if the meter's clock is late by `lag_ns`, and if readings tell of the last `window_s` seconds (0: of all)."""
        found = self.intervals
        first, last = found.start - lag_ns, found.end - lag_ns
        scale = np.ones(len(found))
        if window_s > 0:
            cut = last - max(1, round(window_s * 1e9))
            scale, first = (last - first) / (last - cut), cut
        return observe(self.trace, self.workers, Intervals(first, last, found.energy), scale, found.lengths)

    def part(self, chosen: np.ndarray) -> Metered:
        """The same domain with some of its intervals only."""
        made = Metered(self.trace, self.readings, self.workers)
        found = self.intervals
        made.__dict__["intervals"] = Intervals(found.start[chosen], found.end[chosen], found.energy[chosen])
        return made


def observe(
    trace: TaskTrace, workers: Sequence[int], over: Intervals, scale: Real | None = None, lengths: Real | None = None
) -> Observed:
    """The worker-seconds of each column in these intervals, each times `scale` where it stands for a longer time."""
    mine = np.zeros(len(trace.workers), bool)
    mine[list(workers)] = True
    ran = mine[trace.worker]
    kinds = sorted({trace.kinds[w] for w in workers})
    many = len(kinds) > 1
    kind_of = np.array([kinds.index(kind) if kind in kinds else 0 for kind in trace.kinds], np.int64)
    code = trace.type * len(kinds) + kind_of[trace.worker]
    present = np.unique(code[ran]) if ran.any() else np.empty(0, np.int64)
    moving = np.array([int(c) // len(kinds) in trace.moves for c in present], bool)
    present = np.concatenate((present[~moving], present[moving]))
    names = [f"{trace.types[int(c) // len(kinds)]}@{kinds[int(c) % len(kinds)]}" if many else trace.types[int(c)] for c in present]
    lookup = np.full(len(trace.types) * len(kinds), -1, np.int64)
    lookup[present] = np.arange(len(present))
    column = np.where(ran, lookup[code], -1)
    found = _inside(trace, column, over, len(present))
    busy = int((~moving).sum())
    room = len(workers) * (over.end - over.start)
    idle = room - found[:, :busy].sum(axis=1)
    if (idle < 0).any():
        at = int(np.argmax(idle < 0))
        raise InputError(f"found {found[at, :busy].sum() * 1e-9:.6g} busy worker-seconds from {over.start[at] * 1e-9:.9g} to "
                         f"{over.end[at] * 1e-9:.9g} s; expected at most {room[at] * 1e-9:.6g} of {len(workers)} workers")  # fmt: skip
    seconds = np.column_stack((found, idle)) * 1e-9
    if scale is not None:
        seconds = seconds * scale[:, None]
    rates = _rates(trace, column, len(present)) if len(trace.flops) and len(trace.bytes) else None
    clean = [one_line(name, 60) for name in names]
    whole = over.lengths if lengths is None else lengths
    return Observed((*clean, IDLE), seconds, whole, over.energy, len(workers), (*(~moving).tolist(), False), rates)


def _inside(trace: TaskTrace, column: np.ndarray, over: Intervals, columns: int) -> np.ndarray:
    """Nanoseconds of each column in each interval; windows that overlap are differences of running sums between all edges."""
    if (over.start[1:] >= over.end[:-1]).all():
        return overlaps(trace.start, trace.end, column, trace.weight, over.start, over.end, columns)
    edges = np.unique(np.concatenate((over.start, over.end)))
    cells = overlaps(trace.start, trace.end, column, trace.weight, edges[:-1], edges[1:], columns)
    until = np.vstack((np.zeros((1, columns), np.int64), np.cumsum(cells, axis=0)))
    return np.asarray(until[np.searchsorted(edges, over.end)] - until[np.searchsorted(edges, over.start)])


def _rates(trace: TaskTrace, column: np.ndarray, columns: int) -> tuple[Real, Real]:
    chosen = column >= 0
    ns = np.bincount(column[chosen], (trace.end - trace.start)[chosen] * trace.weight[chosen], minlength=columns)
    found = []
    for work in (trace.flops, trace.bytes):
        total = np.bincount(column[chosen], work[chosen], minlength=columns)
        found.append(np.append(np.where(ns > 0, total / np.maximum(ns, 1.0) * 1e9, 0.0), 0.0))
    return found[0], found[1]
