"""Kernels that are enqueued behind their predecessors before those have ended, because one stream orders them.

A kernel's task may be enqueued ahead when every predecessor has ended or is a kernel in one and the same stream. The device then goes from
one to the next without the host. The task itself still starts after its predecessors, finds its kernel enqueued, and ends with that
kernel's own event, so traces, failures and successors on the host are the same with and without chains.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from armillary.tasks.bodies import resolve, value_of

if TYPE_CHECKING:
    from armillary.tasks import Graph

    from .poller import Lane, Pending

#: Kernels that one body enqueues ahead, so that a stream never holds a whole program.
AHEAD = 256


class Chains:
    """What is known of a run: which tasks have ended, and which kernels stand in which stream."""

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._lock = threading.Lock()
        self._done: set[int] = set()
        self._lane_of: dict[int, Lane] = {}
        #: Kernels that the host enqueued when their task started, and those that were enqueued ahead.
        self.released = 0
        self.chained = 0

    def begin(self, graph: Graph | None) -> None:
        """Starts a run, or ends it with None."""
        with self._lock:
            self._graph = graph
            self._done.clear()
            self._lane_of.clear()
        for task in graph.tasks if graph is not None else ():
            if hasattr(task.call, "pending"):
                task.call.pending = None  # type: ignore[union-attr]

    def ended(self, number: int) -> None:
        """A task has ended well."""
        self._done.add(number)

    def follow(self, body: Any, pending: Pending) -> None:
        """Enqueues ahead what may follow the kernel that was just enqueued."""
        graph, lane, first = self._graph, pending.lane, body.task
        if graph is None or lane is None or first is None or first.id >= len(graph.tasks) or graph.tasks[first.id] is not first:
            return
        # With tokens a kernel is enqueued when it has them, so it cannot be ordered by the stream.
        if body.apis.tokens is not None and body.bound.api.on_cores:
            return
        with self._lock:
            self._lane_of[first.id] = lane
            at, ahead = first, 0
            while at is not None and ahead < AHEAD:
                at = self._next(graph, at, lane, body.bound)
                ahead += 1

    def _next(self, graph: Graph, task: Any, lane: Lane, bound: Any) -> Any:
        if task.retries:
            # A second attempt would change what a follower has read already.
            return None
        for number in task.after:
            follower = graph.tasks[number]
            call: Any = follower.call
            same = getattr(call, "bound", None) is bound
            if not same or number in self._lane_of or follower.excludes is not None or follower.kwargs:
                continue
            if any(n not in self._done and self._lane_of.get(n) is not lane for n in follower.before):
                continue
            args = follower.args if follower.plain else tuple(resolve(a, value_of, {}) for a in follower.args)
            try:
                call.pending = bound.enqueue(call.kernel, args, call.width, lane)
            except Exception:
                # The task meets the same error when it starts, and fails with it.
                continue
            self._lane_of[number] = lane
            self.chained += 1
            return follower
        return None


def watch(policy: Any, chains: Chains) -> Any:
    """The same policy, which also tells the chains which tasks have ended."""
    before = policy.on_finish

    def on_finish(task: Any, worker: int, seconds: float) -> None:
        chains.ended(task.id)
        before(task, worker, seconds)

    policy.on_finish = on_finish
    return policy
