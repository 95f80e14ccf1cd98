"""The common form of all task files, a list of entries with the names of their predecessors, which is checked here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import InputError, one_line, unknown
from armillary.tasks.data import MOST_BYTES
from armillary.tasks.graph import Graph

#: The most tasks of a file, unless the caller allows more.
MOST_TASKS = 5_000_000
MOST_FILE_BYTES = 2 << 30
#: Squares and sums of times stay finite below this.
MOST_SECONDS = 1e15


@dataclass
class Entry:
    """One task of a file."""

    key: str
    name: str
    where: str
    before: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cores: int = 1
    #: The program, or the category of tasks that it belongs to; empty if the file does not say.
    kind: str = ""
    #: The files that it reads and writes, as (name, bytes).
    reads: list[tuple[str, int]] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)


def number(value: Any, where: str, most: float = MOST_SECONDS) -> float:
    """A number that is not negative, at most `most`; anything else raises an `InputError`."""
    try:
        if isinstance(value, bool):
            raise ValueError
        found = float(value)
    except (TypeError, ValueError):
        raise InputError(f"found {one_line(repr(value), 60)}; expected a number", where=where) from None
    if not 0 <= found < math.inf:
        raise InputError(f"found {found!r}; expected a finite number that is not negative", where=where)
    if found > most:
        raise InputError(f"found {found:g}; expected at most {most:g}", where=where)
    return found


def size(value: Any, where: str) -> int:
    """A number of bytes, up to 2**53."""
    return int(number(value, where, MOST_BYTES))


def graph_of(entries: list[Entry], name: str, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of the entries, after checking that predecessors exist, keys differ and there is no cycle (the error names one)."""
    if len(entries) > max_tasks:
        raise InputError(f"found {len(entries)} tasks; expected at most {max_tasks}", where=name)
    graph = Graph(name)
    numbers: dict[str, int] = {}
    for at, entry in enumerate(entries):
        if entry.key in numbers:
            raise InputError(f'task "{entry.key}" appears twice', where=entry.where)
        numbers[entry.key] = at
    for entry in entries:
        for parent in entry.before:
            if parent not in numbers:
                raise unknown("parent", parent, numbers, where=entry.where)
    files: dict[str, Any] = {}
    for entry in entries:
        for file, nbytes in (*entry.reads, *entry.writes):
            if file not in files:
                files[file] = graph.data(file, nbytes=nbytes)
    # Accesses would order tasks by their position in the file, but the edges of the file decide, so accesses are added afterwards.
    for entry in entries:
        needs = {"cores": entry.cores} if entry.cores > 1 else None
        graph.add(None, name=entry.name, key=entry.key, cost=entry.seconds, needs=needs)
    from armillary.tasks.graph import Access

    for task, entry in zip(graph.tasks, entries):
        task.kind = entry.kind
        task.before = list(dict.fromkeys(numbers[parent] for parent in entry.before))
        for earlier in task.before:
            graph.tasks[earlier].after.append(task.id)
        reads = [Access(files[file], (), "reads") for file, _ in entry.reads]
        task.accesses = (*reads, *(Access(files[file], (), "writes") for file, _ in entry.writes))
    graph.validate()
    return graph
