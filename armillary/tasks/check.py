"""Checks that a graph allows a trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from armillary.tasks.progress import DONE
from armillary.tasks.trace import LINK

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph
    from armillary.tasks.trace import Trace


class BrokenTrace(AssertionError):
    """The graph does not allow the trace; the message names the rule and the tasks that broke it."""


def check(trace: Trace, graph: Graph) -> None:
    """Checks that every task has an end, that none started before its predecessors ended, and that no worker, token or resource was
    overused.
    """
    rows = np.flatnonzero(trace["kind"] != LINK)
    task, status, attempt = trace["task"][rows], trace["status"][rows], trace["attempt"][rows]
    started, ended, worker = trace["started"][rows], trace["ended"][rows], trace["worker"][rows]
    seen = np.bincount(task, minlength=len(graph.tasks))
    if len(seen) > len(graph.tasks) or not seen.all():
        missing = [graph.tasks[i].key for i in np.flatnonzero(seen[: len(graph.tasks)] == 0)[:3]]
        raise BrokenTrace(f"tasks without a row: {', '.join(missing)}")
    if (started > ended).any() or (trace["started"][rows] > trace["body_ended"][rows]).any():
        raise BrokenTrace("a row ends before it starts")
    _order(trace, graph, task, status, started, ended)
    for number in np.unique(worker[worker >= 0]):
        mine = rows[worker == number]
        spans = zip(trace["started"][mine], trace["body_ended"][mine], np.ones(len(mine)))
        if _most(spans) > 1:
            raise BrokenTrace(f"worker {number} ran two bodies at once")
    held: dict[str, list[tuple[int, int, float]]] = {}
    for i, row in enumerate(rows):
        if attempt[i] == 0:
            continue
        one = graph.tasks[task[i]]
        span = (int(started[i]), int(trace["body_ended"][row]))
        for token in one.excludes or ():
            held.setdefault(f"token {token}", []).append((span[0], int(ended[i]), 1.0))
        node = trace.nodes[trace["node"][row]]
        needs = {"cores": 1.0, **(one.needs or {})}
        for resource, amount in needs.items():
            if resource in trace.resources:
                held.setdefault(f"{resource} of {node}", []).append((*span, amount))
    for what, spans_held in held.items():
        limit = 1.0 if what.startswith("token ") else trace.resources[what.partition(" of ")[0]]
        if _most(spans_held) > limit + 1e-9:
            raise BrokenTrace(f"{what}: overused, with a limit of {limit:g}")


def _order(trace: Trace, graph: Graph, task: np.ndarray, status: np.ndarray, started: np.ndarray, ended: np.ndarray) -> None:
    # When each task first succeeded; it may have run again later, to restore lost data.
    never = np.iinfo(np.int64).max
    end_of = np.full(len(graph.tasks), never)
    good = status == DONE
    np.minimum.at(end_of, task[good], ended[good])
    first = np.full(len(graph.tasks), never)
    ran = trace["worker"][trace["kind"] != LINK] >= 0
    np.minimum.at(first, task[ran], started[ran])
    for one in graph.tasks:
        if first[one.id] == never:
            continue
        for number in one.before:
            if end_of[number] > first[one.id]:
                when = f"ended at {end_of[number]}" if end_of[number] < never else "ended well"
                raise BrokenTrace(f"{one.key} started at {first[one.id]} before {graph.tasks[number].key} {when}")


def _most(spans: Iterable[tuple[int, int, float]]) -> float:
    """The most that is held at one instant; what ends at an instant is already free then."""
    changes: list[tuple[int, float]] = []
    for start, end, amount in spans:
        if end > start:
            changes += [(int(start), float(amount)), (int(end), -float(amount))]
    now = most = 0.0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
