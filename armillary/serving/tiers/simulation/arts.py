"""ARTS sends the next request to the node of a tier that is expected to finish it soonest."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from armillary.errors import InputError


class Arts:
    """The nodes of one tier, with each node's waiting work, recent speed and free memory.

    capacity [nodes] is work per second, memory [nodes] is bytes. `alpha` weighs the newest observation of a node's speed. The waiting
    work is known with a delay of `staleness_s`.
    """

    def __init__(
        self, capacity: Sequence[float], memory: Sequence[float] | None = None, *, alpha: float = 0.3, staleness_s: float = 0.0
    ) -> None:
        if not capacity or not all(0 < c < float("inf") for c in capacity):
            raise InputError("capacity: expected a number above 0 for each of at least one node")
        if memory is not None and len(memory) != len(capacity):
            raise InputError(f"memory: found {len(memory)} for {len(capacity)} nodes")
        if not 0 < alpha <= 1 or staleness_s < 0:
            raise InputError(f"alpha, staleness_s: found {alpha:g}, {staleness_s:g}; expected (0, 1] and 0 or more")
        self.capacity = list(map(float, capacity))
        self.queue = [0.0] * len(capacity)
        self.free = [float("inf")] * len(capacity) if memory is None else list(map(float, memory))
        self.alpha, self.staleness_s = alpha, staleness_s
        self._late: deque[tuple[float, int, float]] = deque()

    def pick(self, work: float | Sequence[float], memory: float = 0.0, now: float = 0.0) -> int:
        """Books a request of this work (one number, or one per node) and memory on a node and returns it.

        Nodes without enough memory are left out; if none has it, the node that will finish its queue first is taken.
        """
        self._catch_up(now)
        cost = [float(work)] * len(self.queue) if isinstance(work, int | float) else list(work)
        able = [k for k, free in enumerate(self.free) if free >= memory]
        if able:
            best = min(able, key=lambda k: (self.queue[k] + cost[k]) / self.capacity[k])
        else:
            best = min(range(len(self.queue)), key=lambda k: self.queue[k] / self.capacity[k])
        self.free[best] -= memory
        self._change(best, cost[best], now)
        return best

    def done(self, node: int, work: float, seconds: float, now: float = 0.0, booked: float | None = None) -> None:
        """Records the work that a node did in this time: its queue shrinks by it, or by what was booked, and its speed is updated."""
        self._change(node, -(work if booked is None else booked), now)
        if seconds > 0 and work > 0:
            self.capacity[node] += self.alpha * (work / seconds - self.capacity[node])

    def release(self, node: int, work: float, memory: float, now: float = 0.0) -> None:
        """Frees the memory of a request that has left, and the work that was booked for it and not needed."""
        self._change(node, -work, now)
        self.free[node] += memory

    def _change(self, node: int, work: float, now: float) -> None:
        if self.staleness_s:
            self._late.append((now + self.staleness_s, node, work))
        else:
            self.queue[node] += work

    def _catch_up(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, node, work = self._late.popleft()
            self.queue[node] += work
