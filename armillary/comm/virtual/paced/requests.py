"""Requests of paced ranks, which are known exactly when they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.messages.envelope import Status
from armillary.comm.virtual.requests import VirtualRequest

if TYPE_CHECKING:
    from armillary.comm.virtual.paced.rank import PacedRank


class PacedRequest(VirtualRequest):
    """A send or receive whose completion the loop announces when it happens."""

    __slots__ = ("copied", "credit", "match", "named", "protocol", "silent", "stage")

    def __init__(self, rank: PacedRank | None, key: int, tag: int, capacity: int, data: Any, after: Any, target: Any) -> None:
        super().__init__(rank, key, tag, capacity, data, after, target)
        #: The part of `cost` that is spent on a copy.
        self.copied = 0.0
        #: The protocol of a long send, or None for what the run does by default.
        self.protocol: Any = None
        #: The other side of a long message, once they have met.
        self.match: Any = None
        #: The staged collective that goes on with this request.
        self.stage: Any = None
        #: Whether a receive names its source and its tag, and whether its credit has reached the sender.
        self.named = tag >= 0
        self.credit = False
        #: Whether a send is not announced, because the receiver's credit allows it.
        self.silent = False

    def known(self, arrival: float, cost: float) -> None:
        self.arrival = arrival
        self.cost = cost
        rank = self.rank
        if self.target is None and self.match is None and self.origin is not None:
            # An eager message, which is copied out; its source does not use the buffer that it may have known.
            sender = rank.world.ranks[self.origin[0]]
            self.copied = max(0.0, cost - sender.prices[rank.site].receive_overhead)
            if rank.promises:
                rank.promises.pop((self.key, self.tag), None)
        action = None
        if self.stage is not None:
            action = self.stage.part_known()
        elif self.waited:
            rank.core.known(self)
        if action is not None or rank.core.mode.completions:
            rank.core.notify(action)

    def wait(self) -> Status:
        if not self.done:
            type(self).wait_all((self,))
        return self.status or self._end()

    def test(self) -> Status | None:
        if self.done:
            return self._end()
        rank = self.rank
        rank.sync("test")
        if self.arrival is not None:
            return self.wait()
        rank.core.spend(rank.world.poll)
        return None

    @classmethod
    def wait_all(cls, requests: Sequence[Any]) -> list[Status]:
        left = [request for request in requests if not request.done]
        if left:
            rank = left[0].rank
            begin = rank.clock
            rank.core.wait(left)
            rank.passed("wait", "wait", begin, [request for request in left if request.target is None])
        return [request.status or request._end() for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        for i, request in enumerate(requests):
            if request.done:
                return i, request._end()
        rank = requests[0].rank
        rank.sync("waitany")
        rank.core.wait(requests, any_one=True)
        ready = [(request.arrival, i) for i, request in enumerate(requests) if request.arrival is not None]
        _, chosen = min(ready)
        return chosen, requests[chosen].wait()
