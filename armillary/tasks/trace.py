"""The trace of a run: one row per attempt, in the same schema for threads, processes, Dask and virtual workers.

Times are nanoseconds from the start of the run, on one monotonic clock. A transfer is a row of kind `link` with the number of
the task that it was for.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.tasks.progress import CANCELLED, DONE, FAILED

if TYPE_CHECKING:
    import polars

    from armillary.tasks.graph import Graph, Task

COLUMNS = (
    "task", "worker", "node", "kind", "status", "attempt", "cores", "submitted", "ready", "started", "body_ended", "ended",
    "bytes_in", "bytes_out",
)  # fmt: skip
KINDS = ("cpu", "gpu", "link", "host")
STATUSES = {DONE: "done", FAILED: "failed", CANCELLED: "cancelled"}
LINK = KINDS.index("link")


class Recorder:
    """Records the rows of a trace during a run; a row has fourteen 64-bit numbers (112 bytes)."""

    def __init__(self) -> None:
        self.rows = array("q")

    def row(
        self, task: Task, worker: int, status: int, attempt: int, submitted: int, ready: int, started: int, body_ended: int, ended: int,
        node: int = 0, kind: int = 0, bytes_in: int | None = None, bytes_out: int = 0,
    ) -> None:  # fmt: skip
        """Records one attempt at one task."""
        if bytes_in is None:
            bytes_in, bytes_out = traffic(task) if task.accesses else (0, 0)
        cores = 1 if task.needs is None else task.cores
        self.rows.extend(
            (task.id, worker, node, kind, status, attempt, cores, submitted, ready, started, body_ended, ended, bytes_in, bytes_out)
        )

    def cancelled(self, task: Task, submitted: int, now: int) -> None:
        """Records a task that will never run."""
        self.row(task, -1, CANCELLED, 0, submitted, now, now, now, now, bytes_in=0)


def traffic(task: Task) -> tuple[int, int]:
    """The bytes that a task reads and writes, by its accesses."""
    read = written = 0
    for access in task.accesses:
        nbytes = access.piece.nbytes
        if access.mode != "writes":
            read += nbytes
        if access.mode != "reads":
            written += nbytes
    return read, written


@dataclass(frozen=True)
class RealisedPath:
    """The chain of tasks that the end of a run waited for, and where its time went (seconds)."""

    keys: tuple[str, ...]
    compute: float
    wait: float
    transfer: float


@dataclass(frozen=True)
class Trace:
    """The trace of a run: columns as NumPy arrays (`trace.started`, `trace["worker"]`), tables and timelines."""

    rows: np.ndarray
    keys: Sequence[str]
    names: Sequence[str]
    #: The names of the nodes, the number of workers, and the resources of each node.
    nodes: tuple[str, ...] = ("host",)
    workers: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    #: What `time.monotonic_ns()` was when the run began, or None in simulated time and for runs that were read from a file.
    origin_ns: int | None = None

    @staticmethod
    def of(
        recorder: Recorder, graph: Graph, workers: int, resources: Mapping[str, float] | None = None, nodes: tuple[str, ...] = ("host",),
        origin_ns: int | None = None,
    ) -> Trace:  # fmt: skip
        """The trace of a recorder's rows."""
        rows = np.frombuffer(recorder.rows, np.int64).reshape(-1, len(COLUMNS)) if recorder.rows else np.empty((0, len(COLUMNS)), np.int64)
        rows.flags.writeable = False
        return Trace(rows, _Keys(graph), _Names(graph), nodes, workers, dict(resources or {}), origin_ns)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.rows[:, COLUMNS.index(column)]

    def __getattr__(self, column: str) -> np.ndarray:
        if column in COLUMNS:
            return self[column]
        raise AttributeError(column)

    @property
    def makespan(self) -> float:
        """Seconds from the start of the run to the end of its last row."""
        return float(self["ended"].max(initial=0)) / 1e9

    def table(self) -> polars.DataFrame:
        """All rows as a Polars table, with keys, names, kinds and states as text."""
        import polars

        task = self["task"]
        kinds, states = self["kind"], self["status"]
        columns: dict[str, Any] = {
            "task": task,
            "key": [self.keys[i] for i in task],
            "name": [self.names[i] if kind != LINK else "transfer" for i, kind in zip(task, kinds)],
            "kind": [KINDS[k] for k in kinds],
            "worker": self["worker"].astype(np.int32),
            "node": [self.nodes[n] for n in self["node"]],
            **{c: self[c] for c in ("submitted", "ready", "started", "body_ended", "ended")},
            "status": [STATUSES[s] for s in states],
            "attempt": self["attempt"].astype(np.int32),
            "bytes_in": self["bytes_in"],
            "bytes_out": self["bytes_out"],
            "cores": self["cores"].astype(np.int32),
        }
        text = dict.fromkeys(("key", "name", "kind", "node", "status"), polars.String)
        return polars.DataFrame(columns, schema_overrides=text)

    def to_parquet(self, path: str | Path) -> None:
        """Writes the table as Parquet."""
        self.table().write_parquet(path)

    def to_csv(self, path: str | Path) -> None:
        """Writes the table as CSV."""
        self.table().write_csv(path)

    def to_rec(self, path: str | Path, graph: Graph) -> None:
        """Writes records in the format of StarPU's tasks.rec (times in ms)."""
        from armillary.tasks.formats.starpu import write_rec

        write_rec(self, graph, path)

    def timeline(self) -> Any:
        """The rows as an `engine.Timeline`, which writes Chrome/Perfetto or Paraver files."""
        from armillary.tasks.timeline import timeline

        return timeline(self)

    # Questions

    def _busy(self) -> np.ndarray:
        return (self["kind"] != LINK) & (self["worker"] >= 0)

    def utilisation(self, cores: int | None = None) -> float:
        """The share of the workers' time in which a body held them: the sum of (body_ended − started) · cores, divided by workers ·
        makespan.
        """
        total = cores if cores is not None else self.workers
        held = ((self["body_ended"] - self["started"]) * self["cores"])[self._busy()].sum()
        return float(held) / (max(1, total) * max(1.0, float(self["ended"].max(initial=0))))

    def idle(self) -> dict[int, float]:
        """Seconds in which each worker ran no body."""
        span, busy = self["ended"].max(initial=0), self._busy()
        ran = np.bincount(self["worker"][busy], (self["body_ended"] - self["started"])[busy], minlength=self.workers)
        return {worker: float(span - ns) / 1e9 for worker, ns in enumerate(ran)}

    def path(self, graph: Graph) -> RealisedPath:
        """The realised critical path, from the task that ended last back along the predecessors that ended last."""
        good = self._busy() & (self["status"] == DONE)
        # When each task first succeeded; a later run restored lost data, for which its readers waited.
        row_of = {int(t): r for t, r in zip(self["task"][good][::-1], np.flatnonzero(good)[::-1])}
        if not row_of:
            return RealisedPath((), 0.0, 0.0, 0.0)
        moved: dict[int, int] = {}
        links = self["kind"] == LINK
        for t, ns in zip(self["task"][links], (self["ended"] - self["started"])[links]):
            moved[int(t)] = max(moved.get(int(t), 0), int(ns))
        ended = self["ended"]
        at: int | None = max(row_of, key=lambda t: int(ended[row_of[t]]))
        keys, compute, wait, transfer = [], 0, 0, 0
        while at is not None:
            row = row_of[at]
            keys.append(self.keys[at])
            compute += int(ended[row] - self["started"][row])
            before = [n for n in graph.tasks[at].before if n in row_of]
            at_next = max(before, key=lambda t: int(ended[row_of[t]]), default=None)
            gap = int(self["started"][row]) - (int(ended[row_of[at_next]]) if at_next is not None else 0)
            carried = min(gap, moved.get(at, 0))
            transfer, wait, at = transfer + carried, wait + gap - carried, at_next
        return RealisedPath(tuple(reversed(keys)), compute / 1e9, wait / 1e9, transfer / 1e9)

    def check(self, graph: Graph) -> None:
        """Raises `BrokenTrace` unless order, workers, exclusions and resources were respected and every task has one end."""
        from armillary.tasks.check import check

        check(self, graph)


class _Keys(Sequence[str]):
    """The keys of a graph's tasks, made on demand."""

    def __init__(self, graph: Graph) -> None:
        self._tasks = graph.tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, at: Any) -> Any:
        return self._tasks[at].key


class _Names(_Keys):
    """The names of a graph's tasks."""

    def __getitem__(self, at: Any) -> Any:
        return self._tasks[at].name
