"""Which task ran where and when: columns of whole nanoseconds, so that sums of times are exact and independent of the order of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from armillary.tasks.trace import Trace

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]

#: Tasks of one trace, nanoseconds of a moment, types and workers.
MOST_TASKS, MOST_NS, MOST_TYPES, MOST_WORKERS = 5_000_000, 1 << 61, 512, 65_536


def _none() -> Whole:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class TaskTrace:
    """Tasks with their times in ns, the number of their type and of their worker.

    A type named in `moves` is a transfer: it is on the link of a worker, and does not keep the worker itself busy. `weight` counts the
    cores that a task holds. `origin_ns` is the monotonic time at which the clock of the trace was zero, or None where that is not known.
    """

    start: Whole
    end: Whole
    type: Whole
    worker: Whole
    types: tuple[str, ...]
    workers: tuple[str, ...]
    #: The kind of each worker: cpu, gpu, …
    kinds: tuple[str, ...]
    moves: frozenset[int] = frozenset()
    weight: Whole = field(default_factory=_none)
    #: Flops and bytes of each task; empty where they are not known.
    flops: Real = field(default_factory=lambda: np.empty(0))
    bytes: Real = field(default_factory=lambda: np.empty(0))
    keys: Sequence[str] = ()
    origin_ns: int | None = None

    def __post_init__(self) -> None:
        if not len(self.weight):
            object.__setattr__(self, "weight", np.ones(len(self.start), np.int64))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def span(self) -> tuple[int, int]:
        """The first start and the last end, in ns."""
        return int(self.start.min()), int(self.end.max())

    def shifted(self, ns: int) -> TaskTrace:
        """The same tasks, this much later."""
        return replace(self, start=self.start + ns, end=self.end + ns)

    def row_of(self, key: str) -> int:
        """The row of the task with this key."""
        found = [row for row, name in enumerate(self.keys) if name == key]
        if len(found) != 1:
            raise InputError(f'task "{one_line(key, 60)}": found {len(found)} such tasks; expected one')
        return found[0]

    def checked(self, where: str, hint: str = "") -> TaskTrace:
        """The trace itself if the compiled loops can follow it and no worker runs two tasks at once."""
        n = len(self.start)
        if not n:
            raise InputError("found no task that ran; expected at least one", where=where)
        if n > MOST_TASKS:
            raise InputError(f"found {n:,} tasks; expected at most {MOST_TASKS:,}", where=where)
        for what, names, most in (("types", self.types, MOST_TYPES), ("workers", self.workers, MOST_WORKERS)):
            if len(names) > most:
                raise InputError(f"found {len(names):,} {what}; expected at most {most:,}", where=where)
        if int(np.abs(self.start).max()) > MOST_NS or int(np.abs(self.end).max()) > MOST_NS:
            raise InputError(f"found a time beyond {MOST_NS * 1e-9:.3g} s", where=where)
        wrong = np.flatnonzero(self.end < self.start)
        if wrong.size:
            row = int(wrong[0])
            raise InputError(f"task {row + 1} ends at {_s(self.end[row])}, before it starts at {_s(self.start[row])}", where=where)
        busy = np.flatnonzero(~np.isin(self.type, list(self.moves))) if self.moves else np.arange(n)
        order = busy[np.lexsort((self.end[busy], self.start[busy], self.worker[busy]))]
        both = (self.worker[order][1:] == self.worker[order][:-1]) & (self.start[order][1:] < self.end[order][:-1])
        twice = np.flatnonzero(both & (self.end[order][1:] > self.start[order][1:]))
        if twice.size:
            at = order[int(twice[0]) + 1]
            name, type_ = one_line(self.workers[int(self.worker[at])], 40), one_line(self.types[int(self.type[at])], 40)
            message = f"worker {name} starts {type_} at {_s(self.start[at])} while it runs another task"
            raise InputError(f"{message}; expected one task at a time{hint}", where=where)
        return self


def _s(ns: Any) -> str:
    return f"{int(ns) * 1e-9:.9g} s"


def in_lanes(trace: TaskTrace) -> TaskTrace:
    """The same tasks, where those that overlap on one worker stand on workers of their own: concurrent kernels of one device's stream."""
    order = np.lexsort((trace.end, trace.start, trace.worker))
    worker = trace.worker.copy()
    names, kinds = list(trace.workers), list(trace.kinds)
    lanes: list[tuple[int, int]] = []
    last = -1
    for row in order.tolist():
        if int(trace.type[row]) in trace.moves:
            continue
        own = int(trace.worker[row])
        if own != last:
            lanes, last = [(own, -MOST_NS)], own
        free = next((i for i, (_, end) in enumerate(lanes) if end <= trace.start[row]), None)
        if free is None:
            names.append(f"{trace.workers[own]}+{len(lanes)}")
            kinds.append(trace.kinds[own])
            lanes.append((len(names) - 1, 0))
            free = len(lanes) - 1
            if len(names) > MOST_WORKERS:
                raise InputError(f"found more than {MOST_WORKERS:,} tasks at once")
        worker[row] = lanes[free][0]
        lanes[free] = (lanes[free][0], int(trace.end[row]))
    return replace(trace, worker=worker, workers=tuple(names), kinds=tuple(kinds))


def of_run(trace: Trace, flops: Any = None, nbytes: Any = None) -> TaskTrace:
    """A trace of `armillary.tasks` (threads, processes, Dask or virtual workers); bodies that failed count too, as they drew power.

    A transfer belongs to the worker on which its task ran, and only transfers to devices are kept: what a memory draws in a node is not
    told apart. `flops` and `nbytes` give the work of each task of the graph.
    """
    from armillary.tasks.progress import CANCELLED
    from armillary.tasks.trace import KINDS, LINK

    ran = (trace["worker"] >= 0) & (trace["kind"] != LINK) & (trace["body_ended"] >= trace["started"]) & (trace["status"] != CANCELLED)
    link = trace["kind"] == LINK
    place = dict(zip(trace["task"][ran].tolist(), zip(trace["worker"][ran].tolist(), trace["kind"][ran].tolist())))
    gpu = KINDS.index("gpu")
    moved = [int(row) for row in np.flatnonzero(link) if place.get(int(trace["task"][row]), (0, 0))[1] == gpu]
    rows = np.concatenate((np.flatnonzero(ran), np.array(moved, np.int64))).astype(np.int64)
    task = trace["task"][rows]
    count = int(ran.sum())
    named = [trace.names[int(i)] for i in task[:count]]
    types = sorted(set(named))
    number = {name: i for i, name in enumerate(types)}
    type_ = np.array([number[name] for name in named] + [len(types)] * len(moved), np.int64)
    worker = np.concatenate((trace["worker"][rows[:count]], np.array([place[int(i)][0] for i in task[count:]], np.int64))).astype(np.int64)
    kinds = ["cpu"] * max(trace.workers, int(worker.max(initial=-1)) + 1)
    for at, kind in zip(worker[:count].tolist(), trace["kind"][rows[:count]].tolist()):
        kinds[at] = KINDS[kind]
    end = np.where(trace["kind"][rows] == LINK, trace["ended"][rows], trace["body_ended"][rows])
    made = TaskTrace(
        trace["started"][rows].astype(np.int64), end.astype(np.int64), type_, worker,
        (*types, *(("copy",) if moved else ())), tuple(map(str, range(len(kinds)))), tuple(kinds),
        frozenset({len(types)} if moved else ()), np.concatenate((trace["cores"][rows[:count]], np.ones(len(moved), np.int64))),
        _work(flops, task, count), _work(nbytes, task, count),
        keys=[trace.keys[int(i)] for i in task[:count]] + [""] * len(moved), origin_ns=getattr(trace, "origin_ns", None),
    )  # fmt: skip
    return made.checked("trace")


def _work(given: Any, task: Whole, count: int) -> Real:
    if given is None:
        return np.empty(0)
    found = np.asarray(given, float)[task]
    found[count:] = 0.0
    return found


def joined(traces: Sequence[TaskTrace], gap_ns: int = 0) -> TaskTrace:
    """Runs one after another on the same workers, as one trace."""
    types = sorted({name for one in traces for i, name in enumerate(one.types) if i not in one.moves})
    moving = sorted({name for one in traces for i, name in enumerate(one.types) if i in one.moves})
    names = [*types, *moving]
    number = {name: i for i, name in enumerate(names)}
    at, parts = 0, []
    for one in traces:
        relabel = np.array([number[name] for name in one.types], np.int64)
        parts.append((one.start + at, one.end + at, relabel[one.type], one.worker, one.weight, one.flops, one.bytes))
        at += int(one.end.max()) + gap_ns
    start, end, type_, worker, weight, flops, nbytes = (np.concatenate(column) for column in zip(*parts))
    longest = max(traces, key=lambda one: len(one.workers))
    return TaskTrace(
        start, end, type_, worker, tuple(names), longest.workers, longest.kinds, frozenset(number[name] for name in moving), weight,
        flops if len(flops) == len(start) else np.empty(0), nbytes if len(nbytes) == len(start) else np.empty(0),
        keys=[key for one in traces for key in one.keys],
    )  # fmt: skip
