"""A schedule: workers with queues of tasks, flags, and the links that their flows cross; and its run in simulated time.

made = Building(gpu, devices=8)
ready = made.flag("rows 0 on device 3")
route = made.p2p(0, 3, gpu.tma, message=16384)
tasks = made.tasks([(COMPUTE, 0, 5e-6, 0), (SEND, route, 65536.0, 0), (SIGNAL, ready, 1.5e-6, 1)], device=0, role="storer")
made.worker("SM 0", 0, [made.queue(tasks)])
timed = simulate(made.schedule())
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.training.overlap.machine.mechanisms import EPSILON, Gpu, Mechanism
from armillary.training.overlap.programs.primitives import DeadlockFound

from .loop import COMPUTE, FREED, PRODUCED, SEND, SIGNAL, WAIT, heap, simulate_loop

__all__ = ["COMPUTE", "FREED", "PRODUCED", "SEND", "SIGNAL", "WAIT", "Building", "DeadlockFound", "Schedule", "Timed", "simulate"]

#: The most operations of a schedule; a user's operator with more is refused before anything is allocated.
MOST_OPERATIONS = 40_000_000
Operation = tuple[int, int, float, int]


@dataclass(frozen=True)
class Schedule:
    """Arrays that the loop follows; made by `Building`."""

    gpu: Gpu
    devices: int
    operations: tuple[npt.NDArray[Any], ...]
    task_at: npt.NDArray[np.int64]
    #: Device, role and number of each task.
    task_device: npt.NDArray[np.int64]
    task_role: npt.NDArray[np.int64]
    task_number: npt.NDArray[np.int64]
    roles: tuple[str, ...]
    queues: tuple[npt.NDArray[np.int64], ...]
    workers: tuple[npt.NDArray[Any], ...]
    lanes: tuple[tuple[int, str], ...]
    flags: tuple[str, ...]
    #: The least and the largest count of a flag at which some queue opens.
    gates: npt.NDArray[np.int64]
    classes: tuple[npt.NDArray[Any], ...]
    stages: int
    comm_sms: int = 0
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """What happened: seconds of all, of each operation, and bytes by link (up of all devices, then down)."""

    schedule: Schedule
    seconds: float
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    #: The worker of each task.
    worker: npt.NDArray[np.int64]
    link_bytes: npt.NDArray[np.float64]

    def busy(self, kind: int) -> npt.NDArray[np.float64]:
        """Seconds that each worker spends on operations of this kind."""
        s = self.schedule
        of = np.repeat(self.worker, np.diff(s.task_at))
        mask = s.operations[0] == kind
        spent = np.bincount(of[mask], weights=(self.end - self.start)[mask], minlength=len(s.lanes))
        return np.asarray(spent, np.float64)


class Building:
    """A schedule as it is put together. `launch_s` is when workers begin."""

    def __init__(self, gpu: Gpu, devices: int, *, stages: int = 1, launch_s: float = 0.0) -> None:
        self.gpu, self.devices, self.stages, self.launch_s = gpu, devices, stages, launch_s
        self._flags: list[str] = []
        self._classes: dict[Any, int] = {}
        self._class_rows: list[tuple[list[int], list[float], float, float]] = []
        self._operations: list[tuple[npt.NDArray[Any], ...]] = []
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._labels: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._roles: list[str] = []
        self._tasks = self._count = 0
        self._queues: list[npt.NDArray[np.int64]] = []
        self._queue_gates: list[tuple[int, int]] = []
        self._workers: list[tuple[list[int], float, int, int, int]] = []
        self._lanes: list[tuple[int, str]] = []

    def flag(self, name: str, number: int = 1) -> int:
        """The first of `number` new flags that count signals, all zero."""
        first = len(self._flags)
        if number == 1:
            self._flags.append(name)
        else:
            self._flags.extend(f"{name}[{i}]" for i in range(number))
        return first

    # Classes of flows

    def p2p(self, source: int, target: int, by: Mechanism, message: float, sms: float | None = 1.0) -> int:
        """From one device to another; `sms` SMs drive one flow, or None where the link alone limits it."""
        return self.route({source: 1.0}, {target: 1.0}, by, message, sms)

    def multicast(self, source: int, by: Mechanism, message: float, sms: float | None = 1.0) -> int:
        """From one device to all others, once up and once down to each."""
        return self.route({source: 1.0}, {d: 1.0 for d in range(self.devices) if d != source}, by, message, sms)

    def in_fabric(self, owner: int, by: Mechanism, message: float, sms: float | None = 1.0, *, store: bool = True) -> int:
        """All devices send their part up, the switch adds, the owner gets the sum down and, with `store`, multicasts it to all.

        With `store`, an SM moves each byte twice, first in and then out, so that its flow is half as fast.
        """
        up = dict.fromkeys(range(self.devices), 1.0)
        down = {owner: 1.0}
        if store:
            up[owner] += 1.0
            down = {d: 1.0 + (d == owner) for d in range(self.devices)}
            sms = None if sms is None else sms / 2
        return self.route(up, down, by, message, sms)

    def route(
        self, up: dict[int, float], down: dict[int, float], by: Mechanism, message: float, sms: float | None, slow: float = 1.0
    ) -> int:
        """Flows that cross links `up` and `down` this many times per byte; `slow` divides the mechanism's rate."""
        key = (tuple(sorted(up.items())), tuple(sorted(down.items())), by.name, message, sms, slow)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = len(self._class_rows)
            reach = by.peak * by.efficiency(message) / slow
            cap = reach if sms is None or not by.sms else reach * min(1.0, sms / by.sms)
            crossed = [*up, *(self.devices + d for d in down)]
            self._class_rows.append((crossed, [*up.values(), *down.values()], 1.0 / reach if math.isfinite(reach) else 0.0, cap))
        return found

    # Tasks, queues, workers

    def tasks(
        self, operations: Sequence[Operation] | tuple[npt.NDArray[Any], ...], lengths: Sequence[int] | Any = None, *, device: int, role: str
    ) -> npt.NDArray[np.int64]:  # fmt: skip
        """Adds tasks: their operations one after another, and the number of operations of each (one task without it)."""
        if isinstance(operations, tuple) and isinstance(operations[0], np.ndarray):
            columns: tuple[npt.NDArray[Any], ...] = operations
        else:
            columns = tuple(np.array([o[j] for o in operations], kind) for j, kind in enumerate((np.int64, np.int64, np.float64, np.int64)))
        size = np.array([len(columns[0])] if lengths is None else lengths, np.int64)
        self._count += len(columns[0])
        if self._count > MOST_OPERATIONS:
            raise InputError(f"the schedule has more than {MOST_OPERATIONS} operations; take larger tiles or a smaller shape")
        if role not in self._roles:
            self._roles.append(role)
        number = np.arange(len(size), dtype=np.int64)
        self._operations.append(columns)
        self._lengths.append(size)
        self._labels.append((np.full(len(size), device), np.full(len(size), self._roles.index(role)), number))
        made = np.arange(self._tasks, self._tasks + len(size), dtype=np.int64)
        self._tasks += len(size)
        return made

    def queue(self, tasks: npt.NDArray[np.int64], gate: int = -1, count: int = 0) -> int:
        """A queue of tasks, which opens when flag `gate` has `count` signals."""
        self._queues.append(tasks)
        self._queue_gates.append((gate, count))
        return len(self._queues) - 1

    def worker(self, name: str, device: int, queues: Iterable[int], *, produced: int = -1, freed: int = -1, sm: int = -1) -> None:
        """A worker that takes tasks from the first open queue.

        The flags couple a consumer and a storer. Workers with one `sm` share an SM, so that their sends slow down its computation.
        """
        self._workers.append((list(queues), self.launch_s, produced, freed, sm))
        self._lanes.append((device, name))

    def schedule(self, comm_sms: int = 0, **facts: float) -> Schedule:
        """The finished schedule."""
        gates = np.zeros((max(len(self._flags), 1), 2), np.int64)
        gates[:, 0] = np.iinfo(np.int64).max
        for flag, count in self._queue_gates:
            if flag >= 0:
                gates[flag] = min(gates[flag, 0], count), max(gates[flag, 1], count)
        labels = [np.concatenate([x[j] for x in self._labels]) if self._labels else np.empty(0, np.int64) for j in range(3)]
        joined = tuple(
            np.concatenate([o[j] for o in self._operations]) if self._operations else np.empty(0, k)
            for j, k in enumerate((np.int64, np.int64, np.float64, np.int64))
        )
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
        rows = self._class_rows or [([], [], 0.0, math.inf)]
        return Schedule(
            self.gpu, self.devices, joined, _ends(lengths), labels[0], labels[1], labels[2], tuple(self._roles),
            (np.concatenate(self._queues) if self._queues else np.empty(0, np.int64), _ends([len(q) for q in self._queues]),
             np.array([g for g, _ in self._queue_gates], np.int64), np.array([c for _, c in self._queue_gates], np.int64)),
            (_ends([len(q) for q, *_ in self._workers]), np.array([q for w in self._workers for q in w[0]], np.int64),
             np.array([w[1] for w in self._workers]), np.array([w[2] for w in self._workers], np.int64),
             np.array([w[3] for w in self._workers], np.int64), np.array([w[4] for w in self._workers], np.int64)),
            tuple(self._lanes), tuple(self._flags), gates,
            (_ends([len(r[0]) for r in rows]), np.array([x for r in rows for x in r[0]], np.int64),
             np.array([x for r in rows for x in r[1]], np.float64), np.array([r[2] for r in rows]), np.array([r[3] for r in rows])),
            self.stages, comm_sms, dict(facts),
        )  # fmt: skip


def simulate(schedule: Schedule, *, free: bool = False) -> Timed:
    """Runs a schedule; `free` makes every transfer instant. Raises DeadlockFound if some task waits for ever."""
    s = schedule
    kind, what, amount, count = s.operations
    workers = len(s.lanes)
    start, end = np.full(len(kind), np.nan), np.full(len(kind), np.nan)
    owner = np.full(len(s.task_at) - 1, -1, np.int64)
    task_of, op_of = np.full(workers, -1, np.int64), np.zeros(workers, np.int64)
    link_bytes = np.zeros(2 * s.devices)
    flags = np.zeros(max(len(s.flags), 1), np.int64)
    events = heap(workers + int((kind == SIGNAL).sum()) + 1)
    last, stuck = simulate_loop(
        kind, what, amount, count, s.task_at, *s.queues, *s.workers, s.stages, EPSILON, flags, s.gates, *s.classes, link_bytes, free,
        events, start, end, owner, task_of, op_of,
    )  # fmt: skip
    if stuck:
        raise DeadlockFound(_waiting(s, task_of, op_of, flags))
    return Timed(s, float(last), start, end, owner, link_bytes)


def _waiting(s: Schedule, task_of: Any, op_of: Any, flags: Any) -> str:
    """Says which tasks wait for which flags, the first three of them."""
    said: list[str] = []
    for w in np.flatnonzero(task_of >= 0):
        t, i = int(task_of[w]), int(op_of[w])
        f = int(s.operations[1][i])
        f = int(s.workers[3][w]) if f == PRODUCED else int(s.workers[4][w]) if f == FREED else f
        said.append(
            f"{s.roles[s.task_role[t]]} of task {s.task_number[t]} on device {s.task_device[t]} waits for {s.flags[f]}, "
            f"which has {flags[f]} of {s.operations[3][i]} signals"
        )  # fmt: skip
    said = said or [f"a queue of device {s.lanes[int(np.flatnonzero(task_of == -2)[0])][0]} never opens"]
    more = f", and {len(said) - 3} more tasks wait" if len(said) > 3 else ""
    return "deadlock: " + "; ".join(said[:3]) + more


def _ends(lengths: Any) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)
