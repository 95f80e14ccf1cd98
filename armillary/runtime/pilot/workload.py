"""Tasks for a pilot: what each needs, how long it runs, and which tasks it waits for; and the built-in ensembles.

The published shape of the launch experiments is four tasks per usable core, each on a single core, 56 usable cores and 8 GPUs per node. The
campaign is our design after the published description of a drug-discovery campaign: eight independent pipelines with three iterations, each
of docking functions, training of a surrogate, inference functions, coarse and fine scoring by MPI runs, and generation of new candidates.
A stage begins when the whole stage before it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError

EXECUTABLE, FUNCTION, BARRIER = 0, 1, 2
CORES, GPUS = 56, 8
#: Tasks per usable core in the published launch experiments.
WAVES = 4
PIPELINES, ITERATIONS = 8, 3
#: Stages of a campaign's iteration: name, kind, tasks, nodes, cores and GPUs on each node, median seconds, sigma of the logarithm.
STAGES = (
    ("docking", FUNCTION, 4000, 1, 1, 0, 8.0, 0.8),
    ("training", EXECUTABLE, 1, 4, CORES, 8, 600.0, 0.0),
    ("inference", FUNCTION, 512, 1, 7, 1, 30.0, 0.3),
    ("coarse", EXECUTABLE, 96, 1, CORES, 0, 400.0, 0.2),
    ("fine", EXECUTABLE, 24, 2, CORES, 0, 900.0, 0.25),
    ("generation", EXECUTABLE, 16, 1, 1, 1, 300.0, 0.0),
)  # fmt: skip
#: Training takes its median within this share either way.
TRAINING_VARIES = 0.1


@dataclass(frozen=True)
class Work:
    """An allocation and the tasks for it, one entry per task in every array.

    `kind` is EXECUTABLE, FUNCTION or BARRIER (which needs nothing and takes no time); `width` nodes, and on each of them `cores` and
    `gpus`; `seconds` of run time; `arrives` seconds after the allocation began. `after[first[i] : first[i + 1]]` are the tasks that wait
    for task i, and `missing` counts the tasks that a task waits for.
    """

    nodes: int
    node_cores: int
    node_gpus: int
    kind: np.ndarray
    width: np.ndarray
    cores: np.ndarray
    gpus: np.ndarray
    seconds: np.ndarray
    arrives: np.ndarray
    first: np.ndarray
    after: np.ndarray
    missing: np.ndarray
    stage: np.ndarray
    stages: tuple[str, ...] = ("tasks",)
    names: Sequence[str] = field(default=(), repr=False)

    @property
    def tasks(self) -> int:
        """The number of tasks, barriers left out."""
        return int((self.kind != BARRIER).sum())

    @property
    def core_seconds(self) -> float:
        """Core-seconds that the tasks' bodies take."""
        return float((self.seconds * self.cores * self.width).sum())

    def name(self, task: int) -> str:
        """The task's own name, or its number."""
        return self.names[task] if self.names else str(task)

    def check_order(self, where: str) -> None:
        """Raises InputError naming a task that waits for itself, through others or not."""
        left = self.missing.copy()
        ready = [int(i) for i in np.flatnonzero(left == 0)]
        seen = 0
        while ready:
            task = ready.pop()
            seen += 1
            for follower in self.after[self.first[task] : self.first[task + 1]]:
                left[follower] -= 1
                if left[follower] == 0:
                    ready.append(int(follower))
        if seen < len(left):
            raise InputError(f"task {self.name(int(np.flatnonzero(left)[0]))} waits for itself, through others or not", where=where)

    def check_fits(self, largest: int, what: str = "the allocation") -> None:
        """Raises InputError for the first task that no place of `largest` nodes can hold."""
        real = self.kind != BARRIER
        for bad, said in (
            (self.width > largest, f"nodes, and {what} has {largest}"),
            (self.cores > self.node_cores, f"cores on a node of {self.node_cores}"),
            (self.gpus > self.node_gpus, f"GPUs on a node of {self.node_gpus}"),
        ):
            found = np.flatnonzero(bad & real)
            if len(found):
                i = int(found[0])
                needs = {"n": self.width, "c": self.cores, "G": self.gpus}[said[0]][i]
                raise InputError(f"needs {needs} {said}", where=f"task {self.name(i)}")


class Tasks:
    """Collects tasks and what they wait for."""

    def __init__(self) -> None:
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []
        self._stages: list[str] = []
        self.count = 0

    def add(
        self, kind: int, seconds: np.ndarray | Sequence[float], *, width: Any = 1, cores: Any = 1, gpus: Any = 0, arrives: Any = 0.0,
        stage: str = "tasks",
    ) -> np.ndarray:  # fmt: skip
        """Adds tasks of one kind; returns their numbers."""
        length = np.asarray(seconds, np.float64)
        n = len(length)
        if stage not in self._stages:
            self._stages.append(stage)
        whole = [np.broadcast_to(np.asarray(x, np.int64), n) for x in (kind, width, cores, gpus)]
        late = np.broadcast_to(np.asarray(arrives, np.float64), n)
        self._rows.append((*whole, length, late, np.full(n, self._stages.index(stage))))
        self.count += n
        return np.arange(self.count - n, self.count)

    def name_stage(self, stage: str) -> None:
        """Adds a stage."""
        if stage not in self._stages:
            self._stages.append(stage)

    def add_rows(self, kind: Any, seconds: Any, width: Any, cores: Any, gpus: Any, stage: Sequence[str]) -> None:
        """Adds tasks of any kinds, one entry per task in every column."""
        numbers = {name: i for i, name in enumerate(self._stages)}
        whole = [np.asarray(x, np.int64) for x in (kind, width, cores, gpus)]
        length = np.asarray(seconds, np.float64)
        self._rows.append((*whole, length, np.zeros(len(length)), np.array([numbers[name] for name in stage], np.int64)))
        self.count += len(length)

    def barrier(self, before: np.ndarray) -> int:
        """Adds a barrier that waits for all of `before`; returns its number."""
        made = int(self.add(BARRIER, [0.0], width=0, cores=0, stage="barrier")[0])
        self.wait(np.full(len(before), made), before)
        return made

    def wait(self, tasks: np.ndarray | Iterable[int], before: np.ndarray | Iterable[int]) -> None:
        """Each of `tasks` waits for the one of `before` at its place."""
        self._edges.append((np.asarray(tasks, np.int64), np.asarray(before, np.int64)))

    def work(self, nodes: int, cores: int = CORES, gpus: int = GPUS, names: Sequence[str] = ()) -> Work:
        """All of them, for an allocation of so many nodes."""
        columns = [np.concatenate(column) for column in zip(*self._rows, strict=True)]
        waits, befores = (np.concatenate([edge[i] for edge in self._edges] or [np.zeros(0, np.int64)]) for i in (0, 1))
        order = np.argsort(befores, kind="stable")
        first = np.concatenate(([0], np.cumsum(np.bincount(befores, minlength=self.count)))).astype(np.int64)
        missing = np.bincount(waits, minlength=self.count).astype(np.int64)
        kind, width, need, devices, seconds, arrives, stage = columns
        return Work(
            nodes, cores, gpus, kind, width, need, devices, seconds, arrives, first, waits[order], missing, stage, tuple(self._stages),
            names,
        )  # fmt: skip


def null(nodes: int, tasks: int | None = None, kind: int = EXECUTABLE) -> Work:
    """Tasks of no time, four per usable core."""
    made = Tasks()
    made.add(kind, np.zeros(WAVES * CORES * nodes if tasks is None else tasks), stage="null")
    return made.work(nodes)


def dummy(nodes: int, seconds: float = 180.0, kind: int = EXECUTABLE) -> Work:
    """Tasks that sleep, four per usable core."""
    made = Tasks()
    made.add(kind, np.full(WAVES * CORES * nodes, seconds), stage="dummy")
    return made.work(nodes)


def mixed(nodes: int, seconds: float = 180.0) -> Work:
    """Half executables and half functions that sleep, in turn, four per usable core."""
    made = Tasks()
    n = WAVES * CORES * nodes
    made.add(EXECUTABLE, np.full(n, seconds), stage="mixed")
    work = made.work(nodes)
    work.kind[1::2] = FUNCTION
    return work


def campaign(nodes: int, rng: np.random.Generator, functions: float = 1.0) -> Work:
    """Eight pipelines of a drug-discovery campaign; `functions` is the share of its function tasks that is kept."""
    from armillary.workloads import lognormal

    made = Tasks()
    for _ in range(PIPELINES):
        gate: int | None = None
        for _ in range(ITERATIONS):
            for name, kind, count, width, cores, gpus, median, sigma in STAGES:
                n = max(1, round(count * functions)) if kind == FUNCTION else count
                seconds = lognormal(rng, n, median=median, sigma=sigma) if sigma else np.full(n, median)
                if name == "training":
                    seconds = seconds * (1 + TRAINING_VARIES * (2 * rng.random(n) - 1))
                # Whole milliseconds, so that the last bits of an exponential decide nothing.
                tasks = made.add(kind, np.round(seconds, 3), width=width, cores=cores, gpus=gpus, stage=name)
                if gate is not None:
                    made.wait(tasks, np.full(n, gate))
                gate = made.barrier(tasks)
    return made.work(nodes)


def hours(seconds: float, waves: int) -> Work:
    """Tasks of an hour that fill one node so many times: neither a launch rate nor a ceiling matters."""
    made = Tasks()
    made.add(EXECUTABLE, np.full(waves * CORES, seconds), stage="hour")
    return made.work(1)
