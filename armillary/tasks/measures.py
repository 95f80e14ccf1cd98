"""Properties of a graph before it runs: an order, its longest chain, its work, its width, and whether it is valid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task


@dataclass(frozen=True)
class CriticalPath:
    """The longest chain: its seconds, and its tasks from first to last."""

    seconds: float
    tasks: tuple[Task, ...]


def in_order(graph: Graph) -> Iterator[Task]:
    """The tasks in topological order, by number among those that may come next. A cycle raises an `InputError` that names it."""
    missing = [len(task.before) for task in graph.tasks]
    if all(number < task.id for task in graph.tasks for number in task.before):
        yield from graph.tasks
        return
    from heapq import heapify, heappop, heappush

    ready = [task.id for task in graph.tasks if not task.before]
    heapify(ready)
    seen = 0
    while ready:
        task = graph.tasks[heappop(ready)]
        seen += 1
        yield task
        for number in task.after:
            missing[number] -= 1
            if not missing[number]:
                heappush(ready, number)
    if seen < len(graph.tasks):
        raise InputError(f"cycle: {' -> '.join(_cycle(graph, missing))}", where=graph.name)


def _cycle(graph: Graph, missing: list[int]) -> list[str]:
    at = next(number for number, count in enumerate(missing) if count)
    path: list[int] = []
    places: dict[int, int] = {}
    while at not in places:
        places[at] = len(path)
        path.append(at)
        at = next(number for number in graph.tasks[at].before if missing[number])
    loop = [*path[places[at] :], at]
    return [graph.tasks[number].key for number in reversed(loop)]


def validate(graph: Graph) -> None:
    """Raises an `InputError` for a cycle (which it names) or for an edge to a task that does not exist."""
    count = len(graph.tasks)
    for task in graph.tasks:
        for number in (*task.before, *task.after):
            if not 0 <= number < count:
                raise InputError(f"task {task.key} refers to task {number}; there are {count}", where=graph.name)
    for _ in in_order(graph):
        pass


def critical_path(graph: Graph, kind: str) -> CriticalPath:
    """The chain with the most stated seconds; tasks without stated seconds count as zero."""
    ends = [0.0] * len(graph.tasks)
    via = [-1] * len(graph.tasks)
    for task in in_order(graph):
        start = 0.0
        for number in task.before:
            if ends[number] > start or via[task.id] < 0:
                start, via[task.id] = max(start, ends[number]), number
        ends[task.id] = start + (task.seconds(kind) or 0.0)
    if not ends:
        return CriticalPath(0.0, ())
    at = max(range(len(ends)), key=ends.__getitem__)
    chain, seconds = [], ends[at]
    while at >= 0:
        chain.append(graph.tasks[at])
        at = via[at]
    return CriticalPath(seconds, tuple(reversed(chain)))


def total_work(graph: Graph, kind: str) -> float:
    """The sum of the stated seconds of all tasks, times their nodes."""
    return sum((task.seconds(kind) or 0.0) * task.nodes for task in graph.tasks)


def width(graph: Graph) -> int:
    """The most tasks at one depth, where depth is the longest chain of predecessors."""
    depth = [0] * len(graph.tasks)
    counts: dict[int, int] = {}
    for task in in_order(graph):
        depth[task.id] = 1 + max((depth[number] for number in task.before), default=-1)
        counts[depth[task.id]] = counts.get(depth[task.id], 0) + 1
    return max(counts.values(), default=0)
