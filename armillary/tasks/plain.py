"""Simulated runs without complications: one kind of worker, no data movement, no needs and no failures.

Events have the same order as on the engine's clock (tasks that end at one instant end in the order in which they started, and then idle
workers are served), so the trace is the same, bit for bit. Only the bookkeeping that such a run does not need is left out.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from armillary.tasks.policies import Steal
from armillary.tasks.progress import DONE
from armillary.tasks.trace import traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from armillary.tasks.graph import Graph, Task
    from armillary.tasks.progress import Progress
    from armillary.tasks.trace import Recorder


def run_plainly(
    graph: Graph, progress: Progress, recorder: Recorder, policy: Any, idle: list[int], kind: int, nodes: list[int],
    seconds_of: Callable[[Task], float],
) -> None:  # fmt: skip
    """Runs all tasks; `idle` is the heap of workers, `nodes` are their nodes, and `seconds_of` gives the seconds of a task."""
    pop, push, done, extend = policy.pop, policy.push, progress.done, recorder.rows.extend
    learns = isinstance(policy, Steal)
    moves_bytes = any(data.nbytes for data in graph.handles)
    ready_at = [0] * len(graph.tasks)
    times: list[float] = []
    ends: dict[float, list[tuple[Task, int, int, float]]] = {}
    now, now_ns = 0.0, 0
    for task in progress.start():
        push(task)
    while True:
        at_once: list[tuple[Task, int, int, float]] = []
        while idle:
            task = pop(idle[0])
            if task is None:
                break
            end = now + seconds_of(task)
            entry = (task, heappop(idle), now_ns, now)
            if end == now:
                at_once.append(entry)
            elif end in ends:
                ends[end].append(entry)
            else:
                ends[end] = [entry]
                heappush(times, end)
        if not at_once:
            if not times:
                return
            now = heappop(times)
            now_ns = round(now * 1e9)
            at_once = ends.pop(now)
        for task, worker, begun, start in at_once:
            heappush(idle, worker)
            number = task.id
            read, written = traffic(task) if moves_bytes and task.accesses else (0, 0)
            extend((number, worker, nodes[worker], kind, DONE, 1, 1, 0, ready_at[number], begun, now_ns, now_ns, read, written))
            ready = done(task)
            if learns:
                policy.on_finish(task, worker, now - start)
            for other in ready:
                ready_at[other.id] = now_ns
                push(other)
