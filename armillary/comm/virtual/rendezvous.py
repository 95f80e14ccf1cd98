"""Rendezvous: for a long message the sender asks, the receiver answers when it next progresses, and then the data moves.

    sender    RTS: o_s -------- L ------->  receiver has posted and progresses
              sender progresses <-- L -- CTS          (with `get` the data leaves without the sender)
              data ------ L + (n-1)·G --->  o_r

Inside a node the data is copied in and out in cells, or copied once by the receiver. Between nodes long data is not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary.comm.virtual.costs import Price
from armillary.comm.virtual.requests import VirtualRequest

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank


def begin(rank: Rank, target: Rank, key: int, dest: int, tag: int, nbytes: int, data: Any, price: Price) -> VirtualRequest:
    """Send the RTS. The data stays in the sender's buffer."""
    start = rank.clock
    rank.clock = clock = start + price.send_overhead
    request = VirtualRequest(rank, key, tag, nbytes, data, None, target)
    request.peer = dest
    request.price = price
    if rank.world.in_calls:
        rank.needs_progress(request)
    if rank.watched:
        rank.passed("send", "send", start, ())
    cost = price.receive_overhead
    if price.shm is not None:
        target.deliver((clock + price.latency, rank.number, rank.seq, key, tag, nbytes, None, request, cost, clock))
        return request
    # Until the data has left, messages leave the NIC strictly in the order of time.
    rank.port.busy += 1
    rank.port.claim(clock, (rank.number, rank.seq, 0, price, target, key, tag, nbytes, None, request, cost, clock))
    return request


def forget(request: VirtualRequest) -> None:
    """Forget a message that was withdrawn before anyone received it."""
    if request.large:
        request.rank.settled(request)
    if request.price.shm is None:
        request.rank.port.busy -= 1


def meet(receive: VirtualRequest, request: VirtualRequest, arrival: float) -> None:
    """Match an RTS with its receive. The bytes are moved in memory now, and in simulated time later."""
    if request.data is not None and receive.data is not None and receive.error is None:
        receive.data[: request.capacity] = request.data
    ready = receive.posted if receive.posted > arrival else arrival
    _progress(receive.rank, ready, partial(_answered, receive, request))


def _progress(rank: Rank, ready: float, then: Callable[[float], None]) -> None:
    """Call `then` with the first time from `ready` on at which this rank, or its helper, handles a control message."""
    world = rank.world
    if not world.in_calls:
        then(ready)
        return
    # This runs before the ranks of that instant go on, because a rank that waits until then is still in its call.
    world.sim.at(max(ready, world.sim.now), _handled, rank, ready, then, priority=-1)


def _handled(rank: Rank, ready: float, then: Callable[[float], None]) -> None:
    when, there = rank.in_call(ready)
    cost = rank.world.progress.cost
    if rank.world.progress.kind == "interrupt" and not there:
        rank.clock += cost
        when = ready + cost
    then(when)


def _answered(receive: VirtualRequest, request: VirtualRequest, when: float) -> None:
    if receive.large:
        receive.rank.settled(receive)
    price = request.price
    shm = price.shm
    if shm is None:
        arrives = when + price.latency
        if price.get:
            _depart(receive, request, arrives)
        else:
            _progress(request.rank, arrives, partial(_depart, receive, request))
    elif shm.how == "single-copy":
        _copied(receive, request, when + shm.setup, copies=1)
    else:
        _progress(request.rank, when + shm.latency, partial(_copied, receive, request, copies=2))


def _copied(receive: VirtualRequest, request: VirtualRequest, when: float, copies: int) -> None:
    """Copy the data inside a node `copies` times, the second copy one cell behind the first."""
    shm = request.price.shm
    n = request.capacity
    last = min(n, shm.cell) * shm.copy if copies == 2 else 0.0

    def done(end: float) -> None:
        tail = end + (shm.latency + last if copies == 2 else 0.0)
        _complete(receive, request, tail, end if copies == 2 else end + shm.latency)

    request.rank.world.copy(request.rank, when, n, shm.copy, copies, done)


def _depart(receive: VirtualRequest, request: VirtualRequest, when: float) -> None:
    """Let the data enter the sender's NIC."""
    rank = request.rank
    rank.port.claim(when, (rank.number, 0, request.capacity, request.price, receive.rank, partial(_moved, receive, request)))


def _moved(receive: VirtualRequest, request: VirtualRequest, start: float, arrival: float) -> None:
    price = request.price
    request.rank.port.busy -= 1
    _complete(receive, request, arrival, arrival + price.latency if price.get else max(start, arrival - price.latency))


def _complete(receive: VirtualRequest, request: VirtualRequest, arrival: float, left: float) -> None:
    if request.large:
        request.rank.settled(request)
    receive.known(arrival, request.price.receive_overhead)
    request.known(left, 0.0)
