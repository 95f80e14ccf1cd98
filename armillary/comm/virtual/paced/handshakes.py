"""Handshakes of long messages between paced ranks: who asks, who answers, who moves the bytes, and who hears of it.

    rget          RTS -> receiver: get -> data, FIN ->
    rput          RTS -> receiver: CTS -> sender: data ->
    rput-cached   credit -> sender: data ->          (RTS and CTS the first time, and after another protocol on the same source and tag)
    read          RTS -> receiver: copy, FIN ->
    write         RTS -> receiver: CTS -> sender: copy, FIN ->
    shared-copy   RTS -> receiver: CTS, copy         sender: copy; each tells the other
    shm           RTS -> receiver: CTS -> sender: cell, cell, ... -> receiver: cell, cell, ...
    loopback      RTS -> receiver: NIC -> data, FIN ->

Every arrow that a core must answer is an event of that core. Control messages take the latency; an RTS and a credit also pass the NIC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary.comm.virtual.paced.handler import Copy
from armillary.comm.virtual.paced.pieces import Pieces

if TYPE_CHECKING:
    from armillary.comm.virtual.paced.rank import PacedRank
    from armillary.comm.virtual.paced.requests import PacedRequest


def begin(rank: PacedRank, target: Any, request: PacedRequest, seq: int) -> None:
    """Announce a long message; the data stays in the sender's buffer. A sender that knows the receiver's buffer announces nothing."""
    price, key, tag = request.price, request.key, request.tag
    place = (target.number, key, tag)
    rank.core.spend(price.send_overhead)
    clock = rank.clock
    rest = (key, tag, request.capacity, None, request, price.receive_overhead, clock)
    if request.protocol is None or request.protocol.name != "rput-cached":
        rank.forget_buffer(place)
    elif place in rank.warm:
        request.silent = True
        # Probes and receives from any source cannot see a message that has not been announced.
        target._arrive((math.inf, rank.number, seq, *rest))
        return
    else:
        rank.asked[place] = request
    if price.shm is not None:
        target.deliver((clock + price.latency, rank.number, seq, *rest))
    else:
        rank.port.claim(clock, (rank.number, seq, 0, price, target, *rest))


def meet(receive: Any, request: PacedRequest, arrival: float) -> None:
    """Match a long message with its receive. The bytes are moved in memory now, and in simulated time later."""
    if request.data is not None and receive.data is not None and receive.error is None:
        receive.data[: request.capacity] = request.data
    receive.match = request
    request.match = receive
    if request.silent:
        if receive.credit:
            _write(request)
        return
    if request.protocol is None or request.protocol.name != "rput-cached":
        receive.rank.promises.pop((receive.key, receive.tag), None)
    receive.rank.core.notify(partial(_answer, receive, request))


# The receiver's credits for buffers that its sender knows


def offer(rank: PacedRank, receive: Any) -> None:
    """Send a credit for a receive into a buffer that its sender knows."""
    sender = rank.promises.get((receive.key, receive.tag))
    if sender is None:
        return
    price = rank.prices[sender.site]
    rank.core.spend(price.send_overhead)
    rank.seq += 1
    rank.port.claim(
        rank.clock, (rank.number, rank.seq, CREDIT, price, sender, lambda _, arrival: _at(rank, arrival, _credited, receive, sender))
    )


#: The bytes of a credit.
CREDIT = 16


def _credited(receive: Any, sender: PacedRank) -> None:
    receive.credit = True
    request = receive.match
    waits = request is not None and request.silent
    if waits:
        sender.core.notify(partial(_write, request))


def _answer(receive: Any, request: PacedRequest) -> None:
    """Answer an RTS, on the receiver's core."""
    rank, sender, price = receive.rank, request.rank, request.price
    protocol = request.protocol
    name = None if protocol is None else protocol.name
    if name is None:
        name = ("rget" if price.get else "rput") if price.shm is None else price.shm.how
    if name == "rget":
        _fetch(receive, request)
        return
    if name == "loopback":
        way = rank.world.loopback(rank)
        then = partial(_moved, request, price.latency)
        rank.port.claim(rank.clock, (rank.number, 0, request.capacity, way, rank, then))
        return
    if name == "single-copy":
        _background(request, rank.clock + price.shm.setup, copies=1)
        return
    if name == "read":
        rank.core.spend(price.shm.setup)
        _copy(rank, request, request.capacity, lambda: _told(receive, request, price.latency))
        return
    remembers = name == "rput-cached" and rank.can_promise(receive)
    if remembers:
        rank.promises[receive.key, receive.tag] = sender
        for other in rank.others_posted(receive):
            offer(rank, other)
    if name == "shared-copy":
        _shared(receive, request)
        return
    answers: dict[str, Callable[..., None]] = {"write": _copy_there, "shm": _cells, "two-copy": _two_copies}
    answer = answers.get(name, partial(_cleared, remembers=remembers))
    _at(rank, rank.clock + price.latency, sender.core.notify, partial(answer, request))


# Between nodes


def _cleared(request: PacedRequest, remembers: bool) -> None:
    rank = request.rank
    place = (request.target.number, request.key, request.tag)
    if remembers and rank.asked.get(place) is request:
        rank.warm.add(place)
    _write(request)


def _write(request: PacedRequest) -> None:
    """Let the sender write."""
    rank, protocol = request.rank, request.protocol
    if protocol is not None and protocol.chunk and protocol.chunk < request.capacity:
        Pieces(request, rank, 0.0, request.price.latency).post()
        return
    then = partial(_moved, request, None)
    rank.port.claim(rank.clock, (rank.number, 0, request.capacity, request.price, request.match.rank, then))


def _fetch(receive: Any, request: PacedRequest) -> None:
    """Let the receiver read."""
    rank, price, protocol = receive.rank, request.price, request.protocol
    if protocol is not None and protocol.chunk and protocol.chunk < request.capacity:
        Pieces(request, rank, price.latency, 0.0).post()
        return
    source = request.rank
    then = partial(_moved, request, price.latency)
    source.port.claim(rank.clock + price.latency, (source.number, 0, request.capacity, price, rank, then))


def _moved(request: PacedRequest, tells: float | None, start: float, arrival: float) -> None:
    """Complete both sides. The receiver tells the sender `tells` seconds later; a sender that wrote itself knows when the data has left."""
    left = max(start, arrival - request.price.latency) if tells is None else arrival + tells
    _at(request.rank, arrival, request.match.known, arrival, request.price.receive_overhead)
    _at(request.rank, left, request.known, left, 0.0)


# Inside a node


def _copy(rank: PacedRank, request: PacedRequest, nbytes: int, done: Callable[[], None]) -> None:
    protocol = request.protocol
    rank.core.copies.append(Copy(nbytes, request.price.shm.copy, protocol.chunk, protocol.poll, done))


def _told(receive: Any, request: PacedRequest, latency: float) -> None:
    """Complete a receive now, and its send once that is told."""
    now = request.rank.world.sim.now
    receive.known(now, request.price.receive_overhead)
    _at(request.rank, now + latency, request.known, now + latency, 0.0)


def _copy_there(request: PacedRequest) -> None:
    _copy(request.rank, request, request.capacity, partial(_copied_there, request))


def _copied_there(request: PacedRequest) -> None:
    price = request.price
    now = request.rank.world.sim.now
    request.known(now, 0.0)
    _at(request.rank, now + price.latency, request.match.known, now + price.latency, price.receive_overhead)


def _shared(receive: Any, request: PacedRequest) -> None:
    """Copy the last part here and the first part there; each side has heard of the other's end a latency later."""
    rank, sender, price = receive.rank, request.rank, request.price
    first = round(request.protocol.share * request.capacity)
    left = {rank: 2, sender: 2}

    def ended(who: PacedRank) -> None:
        now = rank.world.sim.now
        other = sender if who is rank else rank
        part(who)
        _at(who, now + price.latency, part, other)

    def part(who: PacedRank) -> None:
        left[who] -= 1
        if not left[who]:
            now = rank.world.sim.now
            (receive.known if who is rank else request.known)(now, price.receive_overhead if who is rank else 0.0)

    def share(who: PacedRank, nbytes: int) -> None:
        if nbytes:
            _copy(who, request, nbytes, partial(ended, who))
        else:
            ended(who)

    rank.core.spend(price.shm.setup)
    _at(rank, rank.clock + price.latency, sender.core.notify, partial(share, sender, first))
    share(rank, request.capacity - first)


def _cells(request: PacedRequest) -> None:
    """Copy in, cell by cell; the receiver copies each cell out when it hears of it."""
    price, rank, receive = request.price, request.rank, request.match
    shm = price.shm
    other = receive.rank
    left = [request.capacity]

    def came(nbytes: int) -> None:
        other.core.copies.append(Copy(nbytes, shm.copy, 0, 0.0, partial(out, nbytes)))

    def out(nbytes: int) -> None:
        left[0] -= nbytes
        if not left[0]:
            receive.known(other.world.sim.now, price.receive_overhead)

    def copied(nbytes: int) -> None:
        _at(rank, rank.clock + price.latency, other.core.notify, partial(came, nbytes))

    rank.core.copies.append(
        Copy(request.capacity, shm.copy, shm.cell, request.protocol.poll, lambda: request.known(rank.world.sim.now, 0.0), copied)
    )


def _two_copies(request: PacedRequest) -> None:
    _background(request, request.rank.clock, copies=2)


def _background(request: PacedRequest, when: float, copies: int) -> None:
    """Copy without a core, as a run does for which no protocol was chosen; a second copy runs one cell behind the first."""
    rank, shm, n = request.rank, request.price.shm, request.capacity
    last = min(n, shm.cell) * shm.copy if copies == 2 else 0.0

    def done(end: float) -> None:
        arrival = end + (shm.latency + last if copies == 2 else 0.0)
        left = end if copies == 2 else end + shm.latency
        _at(rank, arrival, request.match.known, arrival, request.price.receive_overhead)
        _at(rank, left, request.known, left, 0.0)

    rank.world.copy(rank, when, n, shm.copy, copies, done)


def _at(rank: PacedRank, time: float, call: Callable[..., None], *args: Any) -> None:
    """Make this call when the loop reaches the time."""
    sim = rank.world.sim
    sim._insert(max(time, sim.now), (lambda _: call(*args), None))
