"""Transfers under way between virtual ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.buffers import unpack
from armillary.comm.message import ANY_SOURCE, ANY_TAG, PROC_NULL, Status
from armillary.comm.requests import Request

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank

#: The part of a key that is the source; the status of a send, which MPI leaves open, and of what was cancelled.
_SOURCE = (1 << 20) - 1
NOTHING = Status(PROC_NULL, ANY_TAG, 0)


def _when(request: VirtualRequest) -> float:
    arrival = request.arrival
    assert arrival is not None
    return arrival


class VirtualRequest(Request):
    """A send or receive of a virtual rank.

    Its life: started; *known* once it is sure when it is complete (`arrival`, perhaps later than now); done when the rank has waited
    for it, which costs a receiver `cost` seconds.
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
        #: Whose it is; None for the one that stands for all sends that are done.
        self.rank: Any = rank
        #: Context and source, and the tag: of a receive as it was posted and then as it came. From any source: the context alone.
        self.key = key
        self.tag = tag
        self.capacity = capacity
        self.nbytes = capacity
        self.data = data
        #: What to unpack when a receive is done.
        self.after = after
        #: The rank that a send goes to; None for a receive.
        self.target: Any = target
        self.arrival: float | None = None
        self.cost = 0.0
        self.done = False
        #: Its rank is parked until this is known.
        self.waited = False
        self.error: Exception | None = None
        self.status: Status | None = None
        #: It may need its rank's progress: the rank keeps note of when it was in calls.
        self.large = False
        #: The rank's clock when it was posted.
        self.posted = 0.0
        self.order = 0
        #: The rank that was named, for messages.
        self.peer = 0
        self.price: Any = None
        #: (sender, when it left) for the timeline.
        self.origin: Any = None

    @property
    def what(self) -> str:
        """The operation in words."""
        if self.target is None:
            source = "ANY_SOURCE" if self.peer == ANY_SOURCE else self.peer
            return f"recv(source={source}, tag={'ANY_TAG' if self.tag == ANY_TAG else self.tag})"
        return f"send(dest={self.peer}, tag={self.tag}, {self.capacity} bytes)"

    def known(self, arrival: float, cost: float) -> None:
        """It is sure now when it is complete."""
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
