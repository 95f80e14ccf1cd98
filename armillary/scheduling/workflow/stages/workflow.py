"""A workflow as arrays: tasks, the files that they read and write, and the stages to which they belong."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from armillary.tasks import Graph

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The most tasks, files and stages of a workflow, and reads plus edges in it.
MOST_TASKS = 10_000
MOST_FILES = 1 << 20
MOST_STAGES = 64
MOST_READS = 1 << 20
#: Bytes of one operation of a task, where nothing is known about it.
TRANSFER = 1 << 20

_NUMBER = re.compile(r"_ID\d+$")


@dataclass(frozen=True)
class Workflow:
    """Tasks in an order in which they may run.

    Files with producer −1 are initial data. `first_read` and `read` are compressed rows: task t reads the files
    `read[first_read[t]:first_read[t + 1]]`; `first_parent` and `parent` give its predecessors in the same way.
    """

    name: str
    stages: tuple[str, ...]
    #: The stage of each task, its seconds of computation and its cores.
    stage: Ints
    compute_s: Floats
    cores: Ints
    #: The bytes of each file, and the task that writes it.
    size: Floats
    producer: Ints
    first_read: Ints
    read: Ints
    first_parent: Ints
    parent: Ints
    #: The level of each stage: the longest path that leads to its tasks.
    order: Ints
    #: Bytes of one operation, and whether operations are scattered, by stage.
    transfer: Floats
    random: npt.NDArray[np.bool_]
    #: Names of tasks and files, for scripts.
    task_names: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.stage)

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.size)

    @functools.cached_property
    def counts(self) -> Ints:
        """The number of tasks of each stage."""
        return np.bincount(self.stage, minlength=len(self.stages)).astype(np.int64)

    @functools.cached_property
    def reader(self) -> Ints:
        """The task of each entry of `read`."""
        return np.repeat(np.arange(self.tasks), np.diff(self.first_read))

    @functools.cached_property
    def read_bytes(self) -> Floats:
        """The bytes that each task reads."""
        return np.bincount(self.reader, self.size[self.read], self.tasks).astype(float)

    @functools.cached_property
    def written_bytes(self) -> Floats:
        """The bytes that each task writes."""
        made = self.producer >= 0
        return np.bincount(self.producer[made], self.size[made], self.tasks).astype(float)

    @functools.cached_property
    def is_read(self) -> npt.NDArray[np.bool_]:
        """Whether each file is read by some task."""
        found = np.zeros(self.files, bool)
        found[self.read] = True
        return found

    def with_operations(self, transfer: dict[str, float], random: Sequence[str] = ()) -> Workflow:
        """The same workflow with other bytes per operation by stage, and these stages scattered."""
        sizes = np.array([transfer.get(name, known) for name, known in zip(self.stages, self.transfer)], float)
        return replace(self, transfer=sizes, random=np.array([name in random for name in self.stages]))

    @staticmethod
    def of(
        name: str, kinds: Sequence[str], compute_s: Any, cores: Any, size: Any, producer: Any, reads: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int]], task_names: Sequence[str] = (), file_names: Sequence[str] = (),
    ) -> Workflow:  # fmt: skip
        """A workflow of tasks in any order, with the kind, files read and extra parents of each; the writer of a file is a parent too."""
        count, made = len(kinds), np.asarray(producer, np.int64)
        _check_sizes(name, count, len(made), sum(map(len, reads)) + sum(map(len, parents)))
        before = [set(parents[t]) | {int(made[f]) for f in reads[t] if made[f] >= 0 and made[f] != t} for t in range(count)]
        level = _levels(name, before, task_names)
        stages, stage_of = _stages(kinds, level)
        if len(stages) > MOST_STAGES:
            raise InputError(f"found {len(stages)} stages; expected at most {MOST_STAGES}", where=name)
        # Tasks go by level and stage, so that those of one stage lie together in the order of the file.
        sequence = sorted(range(count), key=lambda t: (stage_of[t], t))
        place = np.empty(count, np.int64)
        place[sequence] = np.arange(count)
        order = np.zeros(len(stages), np.int64)
        for t in range(count):
            order[stage_of[t]] = level[t]
        moved = np.array(sequence, np.int64)
        return Workflow(
            name, tuple(stages), np.array(stage_of, np.int64)[moved], np.asarray(compute_s, float)[moved],
            np.asarray(cores, np.int64)[moved], np.asarray(size, float), np.where(made >= 0, place[made], -1) if count else made,
            *_rows([reads[t] for t in sequence]), *_rows([sorted(place[p] for p in before[t]) for t in sequence]), order,
            np.full(len(stages), float(TRANSFER)), np.zeros(len(stages), bool),
            tuple(task_names[t] for t in sequence) if task_names else (), tuple(file_names),
        )  # fmt: skip

    @staticmethod
    def from_graph(graph: Graph) -> Workflow:
        """The workflow of a task graph from a file, with stated seconds and files."""
        count = len(graph.tasks)
        _check_sizes(graph.name, count, len(graph.handles), sum(len(t.accesses) + len(t.before) for t in graph.tasks))
        if not count:
            raise InputError("found no tasks; expected at least one", where=graph.name)
        producer = np.full(len(graph.handles), -1, np.int64)
        reads: list[list[int]] = []
        for task in graph.tasks:
            reads.append(list(dict.fromkeys(a.data.id for a in task.accesses if a.mode == "reads")))
            for access in task.accesses:
                if access.mode != "reads":
                    other = int(producer[access.data.id])
                    if other not in (-1, task.id):
                        both = f'"{one_line(graph.tasks[other].key, 60)}" and "{one_line(task.key, 60)}"'
                        raise InputError(f'file "{one_line(access.data.name, 80)}" is written by two tasks, {both}', where=graph.name)
                    producer[access.data.id] = task.id
        for t, files in enumerate(reads):
            reads[t] = [f for f in files if producer[f] != t]  # A file that a task rewrites is its output.
        kinds = [_kind(task.kind, task.name) for task in graph.tasks]
        seconds = [task.seconds("cpu") or 0.0 for task in graph.tasks]
        return Workflow.of(
            graph.name, kinds, seconds, [task.cores for task in graph.tasks], [float(d.nbytes) for d in graph.handles], producer, reads,
            [task.before for task in graph.tasks], [task.key for task in graph.tasks], [d.name for d in graph.handles],
        )  # fmt: skip


def _kind(kind: str, name: str) -> str:
    found = kind.rstrip("/").rpartition("/")[2] or _NUMBER.sub("", name) or name
    return one_line(found, 60).replace("|", "_").replace(",", "_") or "task"


def _check_sizes(name: str, tasks: int, files: int, reads: int) -> None:
    for what, found, most in (("tasks", tasks, MOST_TASKS), ("files", files, MOST_FILES), ("reads and edges", reads, MOST_READS)):
        if found > most:
            raise InputError(f"found {found:,} {what}; expected at most {most:,}", where=name)


def _levels(name: str, before: Sequence[set[int]], task_names: Sequence[str]) -> list[int]:
    """The longest path to each task; a cycle, which files may close although edges do not, is named."""
    after: list[list[int]] = [[] for _ in before]
    missing = [len(b) for b in before]
    for t, parents in enumerate(before):
        for p in parents:
            after[p].append(t)
    level = [0] * len(before)
    ready = [t for t, n in enumerate(missing) if n == 0]
    done = 0
    while ready:
        t = ready.pop()
        done += 1
        for child in after[t]:
            level[child] = max(level[child], level[t] + 1)
            missing[child] -= 1
            if missing[child] == 0:
                ready.append(child)
    if done < len(before):
        raise InputError(f"cycle: {' -> '.join(_cycle(before, missing, task_names))}", where=name)
    return level


def _cycle(before: Sequence[set[int]], missing: Sequence[int], names: Sequence[str]) -> list[str]:
    at = next(t for t, n in enumerate(missing) if n > 0)
    seen: list[int] = []
    while at not in seen:
        seen.append(at)
        at = min(p for p in before[at] if missing[p] > 0)
    found = [*seen[seen.index(at) :][::-1]]
    found.append(found[0])
    return [one_line(names[t], 40) if names else str(t) for t in found[:8]]


def _stages(kinds: Sequence[str], level: Sequence[int]) -> tuple[list[str], list[int]]:
    """Names of the stages by level and first task, and the stage of each task; a kind at several levels gets `@level`."""
    levels: dict[str, set[int]] = {}
    for kind, at in zip(kinds, level):
        levels.setdefault(kind, set()).add(at)
    pairs = list(dict.fromkeys(zip(level, kinds)))
    pairs.sort(key=lambda pair: pair[0])
    number = {pair: n for n, pair in enumerate(pairs)}
    names = [kind if len(levels[kind]) == 1 else f"{kind}@{at}" for at, kind in pairs]
    for n, name in enumerate(names):  # A kind may be called like another with its level.
        while name in names[:n]:
            name += "'"
        names[n] = name
    return names, [number[at, kind] for kind, at in zip(kinds, level)]


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    first = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=first[1:])
    return first, np.array([n for row in rows for n in row], np.int64)
