"""Requests of virtual ranks: transfers under way in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.messages.buffers import unpack
from armillary.comm.messages.envelope import NOTHING, Status, receive_in_words, send_in_words
from armillary.comm.messages.requests import Request

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank

#: The bits of a key that hold the source.
_SOURCE = (1 << 20) - 1


def _when(request: VirtualRequest) -> float:
    arrival = request.arrival
    assert arrival is not None
    return arrival


class VirtualRequest(Request):
    """A send or receive of a virtual rank.

    It is started; it is *known* once the time of its completion is certain (`arrival`, which may be later than now); and it is done when
    the rank has waited for it, which costs a receiver `cost` seconds.
    """

    __slots__ = (
        "after",
        "arrival",
        "capacity",
        "cost",
        "data",
        "done",
        "error",
        "key",
        "large",
        "nbytes",
        "order",
        "origin",
        "peer",
        "posted",
        "price",
        "rank",
        "status",
        "tag",
        "target",
        "waited",
    )

    def __init__(self, rank: Rank | None, key: int, tag: int, capacity: int, data: Any, after: Any, target: Rank | None) -> None:
        #: The rank that started it, or None for the request that stands for all sends that are done.
        self.rank: Any = rank
        #: The context plus the source, as a receive named them and then as they arrived; for any source the context alone.
        self.key = key
        #: The tag, as a receive named it and then as it arrived.
        self.tag = tag
        self.capacity = capacity
        self.nbytes = capacity
        self.data = data
        #: The array and the layout to unpack into when a receive is done.
        self.after = after
        #: The rank that a send goes to, or None for a receive.
        self.target: Any = target
        self.arrival: float | None = None
        self.cost = 0.0
        self.done = False
        #: Whether the rank is parked until this request is known.
        self.waited = False
        self.error: Exception | None = None
        self.status: Status | None = None
        #: Whether it may need its rank's progress, so that the rank keeps note of when it was in calls.
        self.large = False
        #: The rank's clock when it was posted.
        self.posted = 0.0
        self.order = 0
        #: The rank that the call named, for texts.
        self.peer = 0
        self.price: Any = None
        #: The sender and the time at which the message left, for the timeline.
        self.origin: Any = None

    @property
    def what(self) -> str:
        """The operation in words."""
        if self.target is None:
            return receive_in_words("recv", self.peer, self.tag)
        return send_in_words(self.peer, self.tag, self.capacity)

    def known(self, arrival: float, cost: float) -> None:
        """Set the time of completion, which is certain now, and the seconds that waiting costs."""
        self.arrival = arrival
        self.cost = cost
        if self.waited:
            self.rank.informed(arrival)

    def wait(self) -> Status:
        if not self.done:
            rank = self.rank
            begin = rank.clock
            arrival = self.arrival
            if arrival is None:
                rank.block((self,))
                arrival = _when(self)
            clock = rank.clock
            rank.clock = (arrival if arrival > clock else clock) + self.cost
            self.done = True
            if rank.watched:
                rank.passed("wait", "wait", begin, (self,))
        return self.status or self._end()

    def test(self) -> Status | None:
        if self.done:
            return self._end()
        rank = self.rank
        begin = rank.clock
        rank.sync("test")
        if self.arrival is not None and self.arrival <= rank.clock:
            return self.wait()
        rank.clock += rank.world.poll
        if rank.watched:
            rank.passed("test", "wait", begin, ())
        return None

    def cancel(self) -> bool:
        if self.done:
            return False
        self.rank.sync("cancel")
        if self.arrival is not None or not self.rank.take_back(self):
            return False
        self.status = NOTHING
        self.after = None
        self.done = True
        return True

    @classmethod
    def wait_all(cls, requests: Sequence[Any]) -> list[Status]:
        left = [request for request in requests if not request.done]
        if left:
            rank = left[0].rank
            begin = rank.clock
            unknown = [request for request in left if request.arrival is None]
            if unknown:
                rank.block(unknown)
            if len(left) > 1:
                left.sort(key=_when)
            clock = rank.clock
            for request in left:
                arrival = request.arrival
                if arrival > clock:
                    clock = arrival
                clock += request.cost
                request.done = True
            rank.clock = clock
            if rank.watched:
                rank.passed("wait", "wait", begin, left)
        return [request.status or request._end() for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        for i, request in enumerate(requests):
            if request.done:
                return i, request._end()
        rank = requests[0].rank
        rank.first_of(requests)
        ready = [(request.arrival, i) for i, request in enumerate(requests) if request.arrival is not None]
        _, chosen = min(ready)
        return chosen, requests[chosen].wait()

    def _end(self) -> Status:
        if self.error is not None:
            raise self.error
        status = self.status
        if status is None:
            if self.target is not None:
                self.status = status = NOTHING
            else:
                if self.after is not None:
                    after, self.after = self.after, None
                    unpack(self.data, self.nbytes, after)
                self.status = status = Status(self.key & _SOURCE, self.tag, self.nbytes)
        return status
