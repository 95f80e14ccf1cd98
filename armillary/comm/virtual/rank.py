"""One virtual rank: its clock, the messages and receives that wait at it, and how it parks.

The clock of a rank runs ahead of the loop's time: a call that needs no other rank only moves the clock. Receives that name their source
are matched as soon as both sides are known, whatever the time, because the messages of one source arrive in the order of sending and
nothing that happens later can change which one a receive gets. A call that does depend on time (`ANY_SOURCE`, a probe, a test) first parks
until the loop has reached the rank's clock. While a receive from any source or a probe waits, the rank is *timed*, and the loop matches
messages for it when they arrive.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

from armillary.comm.failures import Aborted, Truncated
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG
from armillary.comm.virtual import rendezvous
from armillary.comm.virtual.paced import handshakes
from armillary.comm.virtual.requests import VirtualRequest

if TYPE_CHECKING:
    from armillary.comm.virtual.world import World

#: (arrival, sender, number of the send, key, tag, bytes, data or None, request of a rendezvous or None, receiver's cost, time of leaving).
#: The first three order messages that arrive, in whatever order the ranks were run. The key is the context plus the source.
Message: TypeAlias = tuple[float, int, int, int, int, int, Any, Any, float, float]

#: Contexts are multiples of this number, which no rank reaches.
_STEP = 1 << 20
SOURCE = _STEP - 1
CONTEXT = ~SOURCE


def context_key(number: int) -> int:
    """Return the context of this number, as it stands in keys."""
    return number * _STEP


class Rank:
    """The state of one rank in the simulation, which its communicators share."""

    __slots__ = (
        "any",
        "arrived",
        "begins",
        "clock",
        "ended",
        "ends",
        "entry",
        "flying",
        "greenlet",
        "inside",
        "large",
        "mark",
        "missing",
        "number",
        "order",
        "place",
        "port",
        "posted",
        "prices",
        "probing",
        "roof",
        "seq",
        "site",
        "timed",
        "waits",
        "watched",
        "wild",
        "world",
    )

    def __init__(self, world: World, number: int, place: Any) -> None:
        self.world = world
        self.number = number
        self.place = place
        #: The simulated seconds of this rank, which are never behind what the loop has done with it.
        self.clock = 0.0
        self.greenlet: Any = None
        #: The entry that makes the loop run this rank.
        self.entry: Any = None
        self.ended = False
        #: The number of sends so far.
        self.seq = 0
        #: The number of receives so far.
        self.order = 0
        #: Receives and messages by key: one entry, or a deque of several in order.
        self.posted: dict[int, Any] = {}
        self.arrived: dict[int, Any] = {}
        #: Whether the loop matches messages when they arrive.
        self.timed = False
        #: The messages on their way to a timed rank, as a heap.
        self.flying: list[Message] | None = None
        #: The receives from any source.
        self.wild: list[VirtualRequest] | None = None
        #: The (context, source, tag) that a probe looks for.
        self.probing: tuple[int, int, int] | None = None
        #: While the rank is parked: the number of requests that are not known yet, what it waits for, and whether one of them suffices.
        self.missing = 0
        self.waits: Any = None
        self.any = False
        #: The time since which the rank is in a call, or None.
        self.inside: float | None = None
        #: The number of requests that need this rank's progress and, while there are any, the times of its calls.
        self.large = 0
        self.begins: list[float] = []
        self.ends: list[float] = []
        #: Whether the timeline or a rendezvous has to hear of each call.
        self.watched = world.record is not None
        #: The site, the prices by site of the other rank, the NIC and the roofline, which the world sets.
        self.site = 0
        self.prices: Any = None
        self.port: Any = None
        self.roof: Any = None
        #: The CPU seconds at the last charge.
        self.mark: float | None = None

    # Sending

    def send(self, target: Rank, key: int, dest: int, tag: int, nbytes: int, data: Any) -> VirtualRequest:
        """Start a message at this rank's clock."""
        price = self.prices[target.site]
        overhead, copy, other_overhead, other_copy, latency, byte_gap, gap, eager, shm, _ = price
        self.seq = seq = self.seq + 1
        begin = self.clock
        if nbytes > eager:
            return rendezvous.begin(self, target, key, dest, tag, nbytes, data, price)
        self.clock = clock = begin + (overhead + nbytes * copy)
        cost = other_overhead + nbytes * other_copy
        if self.watched:
            self.passed("send", "send", begin, ())
        if shm is not None:
            if data is not None and (target.timed or key not in target.posted):
                data = data.copy()
            target.deliver((clock + latency, self.number, seq, key, tag, nbytes, data, None, cost, clock))
            return self.world.sent
        port = self.port
        if port.busy:
            if data is not None:
                data = data.copy()
            port.claim(clock, (self.number, seq, nbytes, price, target, key, tag, nbytes, data, None, cost, clock))
            return self.world.sent
        if data is not None and (target.timed or key not in target.posted):
            data = data.copy()
        wire = (nbytes - 1) * byte_gap if nbytes > 1 else 0.0
        start = port.free
        if clock > start:
            start = clock
        port.free = start + wire + gap
        target.deliver((start + (latency + wire), self.number, seq, key, tag, nbytes, data, None, cost, clock))
        return self.world.sent

    # Matching

    def deliver(self, message: Message) -> None:
        """Take in a message that is on its way and will arrive at a known time."""
        if self.timed:
            self._fly(message)
            return
        key = message[3]
        receive = self.posted.get(key)
        if receive is not None:
            if receive.__class__ is deque:
                receive = _taken(self.posted, key, message[4])
            elif receive.tag == message[4] or receive.tag < 0:
                del self.posted[key]
            else:
                receive = None
            if receive is not None:
                meet(receive, message)
                return
        _append(self.arrived, key, message)

    def take(self, receive: VirtualRequest, source: int) -> None:
        """Take in a receive; a source below 0 stands for any."""
        if source < 0:
            self.sync("recv")
            self.post_wild(receive)
        else:
            self.post(receive.key, receive)

    def post(self, key: int, receive: VirtualRequest) -> None:
        """Take in a receive that names its source."""
        message = self.arrived.get(key)
        if message is not None:
            tag = receive.tag
            if message.__class__ is deque:
                message = _sent_first(self.arrived, key, tag)
            elif message[4] == tag or tag < 0:
                del self.arrived[key]
            else:
                message = None
            if message is not None:
                meet(receive, message)
                return
        _append(self.posted, key, receive)

    def post_wild(self, receive: VirtualRequest) -> None:
        """Take in a receive from any source, after the loop has reached the rank's clock."""
        message = self.find(receive.key, ANY_SOURCE, receive.tag)
        if message is not None:
            _remove(self.arrived, message[3], message)
            meet(receive, message)
            return
        if self.wild is None:
            self.wild = []
        self.wild.append(receive)
        self.start_timing()

    def find(self, context: int, source: int, tag: int) -> Message | None:
        """Return the earliest message that has arrived and fits, or None."""
        now = self.clock
        keys = (context + source,) if source >= 0 else [key for key in self.arrived if key & CONTEXT == context]
        best: Message | None = None
        for key in keys:
            for message in _listed(self.arrived.get(key)):
                if message[4] == tag or tag < 0:
                    if message[0] <= now and (best is None or message[:3] < best[:3]):
                        best = message
                    break
        return best

    def start_timing(self) -> None:
        """Let the loop match messages as they arrive, from now on."""
        if self.timed:
            return
        self.timed = True
        now = self.clock
        for key in list(self.arrived):
            messages = list(_listed(self.arrived[key]))
            if messages[-1][0] > now:
                del self.arrived[key]
                for message in messages:
                    if message[0] <= now:
                        _append(self.arrived, key, message)
                    else:
                        self._fly(message)

    def _fly(self, message: Message) -> None:
        if self.flying is None:
            self.flying = []
        heappush(self.flying, message)
        sim = self.world.sim
        sim.at(max(message[0], sim.now), self._land, priority=1)

    def _land(self) -> None:
        now = self.world.sim.now
        flying = self.flying
        while flying and flying[0][0] <= now:
            self._arrive(heappop(flying))
        if not self.wild and not flying and self.probing is None:
            self.timed = False

    def _arrive(self, message: Message) -> None:
        key, tag = message[3], message[4]
        named = next((r for r in _listed(self.posted.get(key)) if r.tag in (tag, ANY_TAG)), None)
        wild = next((r for r in self.wild or () if r.key == key & CONTEXT and r.tag in (tag, ANY_TAG)), None)
        if named is not None and (wild is None or named.order < wild.order):
            _remove(self.posted, key, named)
            meet(named, message)
        elif wild is not None:
            assert self.wild is not None
            self.wild.remove(wild)
            meet(wild, message)
        else:
            _append(self.arrived, key, message)
            if self.probing is not None:
                context, source, wanted = self.probing
                if context == key & CONTEXT and source in (key & SOURCE, ANY_SOURCE) and wanted in (tag, ANY_TAG):
                    self.probing = None
                    self.world.wake(self, message[0])

    def take_back(self, request: VirtualRequest) -> bool:
        """Withdraw a receive or a send that has not been matched. Returns False if it has been."""
        if request.target is None:
            if self.wild and request in self.wild:
                self.wild.remove(request)
            elif not _remove(self.posted, request.key, request):
                return False
            if request.large:
                self.settled(request)
            return True
        arrived = request.target.arrived
        message = next((m for m in _listed(arrived.get(request.key)) if m[7] is request), None)
        if message is None:
            return False
        _remove(arrived, request.key, message)
        if request.__class__ is VirtualRequest:
            rendezvous.forget(request)
        return True

    # Parking

    def block(self, unknown: Sequence[VirtualRequest]) -> None:
        """Park until all of these requests are known."""
        world = self.world
        if world.aborted:
            raise Aborted("another rank failed")
        for request in unknown:
            request.waited = True
        self.missing = len(unknown)
        self.waits = unknown
        self.inside = self.clock
        if self.mark is None:
            world.hub.switch()
        else:
            self._leave()
        self.inside = None
        self.waits = None

    def informed(self, arrival: float) -> None:
        """Note that one more of the requests that the rank waits for is known."""
        world = self.world
        if self.any:
            world.sim.at(max(arrival, self.clock, world.sim.now), self._any_there, priority=1)
            return
        self.missing -= 1
        if not self.missing:
            # Everything that the rank waits for is known, so it may run ahead of the loop.
            world.wake(self, 0.0)

    def first_of(self, requests: Sequence[VirtualRequest]) -> None:
        """Park until the loop has reached the time at which the first of these requests is complete."""
        self.sync("waitany")
        if any(r.arrival is not None and r.arrival <= self.clock for r in requests):
            return
        self.any = True
        self.waits = requests
        for request in requests:
            request.waited = True
            if request.arrival is not None:
                self.informed(request.arrival)
        self.inside = self.clock
        self._leave()
        self.inside = None
        for request in requests:
            request.waited = False

    def _any_there(self) -> None:
        now = self.world.sim.now
        if self.any and any(r.arrival is not None and r.arrival <= now for r in self.waits):
            self.any = False
            self.waits = None
            self.world.wake(self, now)

    def sync(self, what: str) -> None:
        """Park until the loop's time has reached this rank's clock, so that everything that has arrived by then is known."""
        world = self.world
        if world.aborted:
            raise Aborted("another rank failed")
        if self.large:
            self.point(self.clock, self.clock)
        if world.sim.now < self.clock or world.sim._ready:
            self.waits = what
            world.wake_last(self, self.clock)
            self._leave()
            self.waits = None

    def park(self, what: str) -> None:
        """Park until another rank wakes this one. `what` says in words what it waits for."""
        if self.world.aborted:
            raise Aborted("another rank failed")
        self.waits = what
        self.inside = self.clock
        self._leave()
        self.inside = None
        self.waits = None

    def _leave(self) -> None:
        """Switch to the loop. What other ranks compute meanwhile is not charged to this rank."""
        if self.mark is None:
            self.world.hub.switch()
            return
        before = time.thread_time()
        self.world.hub.switch()
        self.mark += time.thread_time() - before

    # Being in calls

    def needs_progress(self, request: VirtualRequest) -> None:
        """Note from now on when this rank is in calls."""
        request.large = True
        self.large += 1
        self.watched = True

    def settled(self, request: VirtualRequest) -> None:
        """Note that this request needs no more progress."""
        request.large = False
        self.large -= 1
        if not self.large:
            self.begins.clear()
            self.ends.clear()
            self.watched = self.world.record is not None

    def point(self, begin: float, end: float) -> None:
        """Note that the rank was in a call from `begin` to `end`."""
        self.begins.append(begin)
        self.ends.append(end)

    def in_call(self, ready: float) -> tuple[float, bool]:
        """Return the first time from `ready` on at which the rank is in a call, and whether it was in one at `ready` already."""
        i = bisect_left(self.ends, ready)
        if i < len(self.ends):
            begin = self.begins[i]
            return (ready, True) if begin <= ready else (begin, False)
        since = self.clock if self.ended else self.inside
        if since is not None and since > ready:
            return since, False
        return ready, True

    def finish(self) -> None:
        """Note that the program has returned."""
        self.ended = True

    def close(self, seconds: float) -> None:
        """Note how long the run took."""

    def passed(self, name: str, category: str, begin: float, received: Sequence[VirtualRequest]) -> None:
        """Note a call that has ended, for progress and for the timeline."""
        if self.large:
            self.point(begin, self.clock)
        record = self.world.record
        if record is not None:
            record.call(self, name, category, begin, received)


def meet(receive: VirtualRequest, message: Message) -> None:
    """Complete a receive with its message."""
    arrival, sender, _, key, tag, nbytes, data, request, cost, sent = message
    receive.key = key
    receive.tag = tag
    receive.nbytes = nbytes
    if receive.rank.watched:
        receive.origin = (sender, sent)
    if nbytes > receive.capacity:
        receive.error = Truncated(nbytes, receive.capacity)
        data = None
    if request is not None:
        (rendezvous if request.__class__ is VirtualRequest else handshakes).meet(receive, request, arrival)
        return
    if data is not None and receive.data is not None:
        receive.data[:nbytes] = data
    if receive.large:
        receive.rank.settled(receive)
    receive.known(arrival, cost)


def _append(table: dict[int, Any], key: int, entry: Any) -> None:
    before = table.setdefault(key, entry)
    if before is not entry:
        if before.__class__ is deque:
            before.append(entry)
        else:
            table[key] = deque((before, entry))


def _listed(found: Any) -> Any:
    return () if found is None else found if found.__class__ is deque else (found,)


def _taken(posted: dict[int, Any], key: int, tag: int) -> Any:
    """Remove and return the first of several receives that takes this tag, or return None."""
    several = posted[key]
    for i, receive in enumerate(several):
        if receive.tag == tag or receive.tag < 0:
            del several[i]
            if not several:
                del posted[key]
            return receive
    return None


def _sent_first(arrived: dict[int, Any], key: int, tag: int) -> Any:
    """Remove and return the first of several messages that has this tag, or return None."""
    several = arrived[key]
    for i, message in enumerate(several):
        if message[4] == tag or tag < 0:
            del several[i]
            if not several:
                del arrived[key]
            return message
    return None


def _remove(table: dict[int, Any], key: int, entry: Any) -> bool:
    found = table.get(key)
    if found is entry:
        del table[key]
        return True
    if found.__class__ is not deque:
        return False
    for i, other in enumerate(found):
        if other is entry:
            del found[i]
            if not found:
                del table[key]
            return True
    return False
