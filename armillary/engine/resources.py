"""Limits on concurrent use: a resource, a semaphore, and a barrier.

    with tool.request() as held:
        yield held          # in a spawned process: held.wait()
        yield 3.0

A `with` block releases or withdraws the request however it is left; without one, call `release()`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from armillary.engine.events import Event
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.engine.processes import Process
    from armillary.engine.simulation import Simulation

POLICIES = ("fifo", "priority")
_WAITS, _HELD, _GONE = 0, 1, 2


def whole(value: object, what: str, least: int = 1) -> int:
    """`value` as a whole number of `least` or more; anything else raises an `InputError`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise InputError(f"{what}: found {value!r}; expected a whole number of {least} or more")
    return int(value.__index__())


@dataclass(frozen=True)
class Preempted:
    """The cause of the `Interrupted` that a holder gets: the request that took its place, and the time since which it held it."""

    by: Process | None
    since: float


class Request(Event):
    """A place in a resource, which is requested, then held (once the event has happened), then released."""

    __slots__ = ("_number", "_state", "owner", "priority", "resource", "since")

    def __init__(self, resource: Resource, priority: float) -> None:
        sim = resource.sim
        self.sim = sim
        self.name = None
        self.callbacks = []
        self.value = None
        self._error = None
        self._heard = False
        self.resource = resource
        #: Lower is more urgent.
        self.priority = priority
        #: The process that made the request, or None outside processes.
        self.owner = sim.active
        #: When the request was granted.
        self.since = 0.0
        self._state = _WAITS

    def release(self) -> None:
        """Releases the place, or withdraws the request if it still waits; a second call has no effect."""
        self.resource.release(self)

    cancel = release

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exception: object) -> None:
        self.resource.release(self)

    def describe(self) -> str:
        """A description for messages."""
        return f"a place in {self.resource.name} ({self.resource.used} of {self.resource.capacity} held)"


class Resource:
    """`capacity` places; if none is free, requests wait in order of arrival or by priority.

    With `policy="priority"`, lower numbers go first. A request with `preempt=True` takes the place of the least urgent holder if that
    holder is less urgent; the holder is interrupted with the cause `Preempted`.
    """

    def __init__(self, sim: Simulation, capacity: int = 1, policy: str = "fifo", name: str = "resource") -> None:
        if policy not in POLICIES:
            raise unknown("policy", str(policy), POLICIES, where=name)
        self.sim = sim
        self.capacity = whole(capacity, f"{name}: capacity")
        self.policy = policy
        self.name = name
        #: The number of places held.
        self.used = 0
        self._ordered = policy == "priority"
        self._queue: deque[Request] = deque()
        self._urgent: list[tuple[float, int, Request]] = []
        # The holders in the order of their grants, which are kept only if some may be preempted.
        self._holders: dict[Request, None] = {}
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """The requests that wait."""
        return self._waiting

    def request(self, priority: float = 0, *, preempt: bool = False) -> Request:
        """Requests a place; the request is an event that happens when the place is held."""
        request = Request(self, priority)
        if self.used < self.capacity:
            # Places are free only if no request waits.
            self.used += 1
            request._state = _HELD
            request.callbacks = None
            request.value = request
            if self._ordered:
                request.since = self.sim.now
                self._holders[request] = None
            return request
        self._waiting += 1
        if not self._ordered:
            if preempt or priority:
                raise InputError(f'{self.name}: priorities and preemption need policy="priority"; its policy is "fifo"')
            self._queue.append(request)
            return request
        heappush(self._urgent, (priority, self.sim._next(), request))
        if preempt:
            self._preempt(request)
        return request

    def _preempt(self, request: Request) -> None:
        last: Request | None = None
        for holder in self._holders:
            if last is None or holder.priority >= last.priority:
                last = holder
        if last is not None and last.priority > request.priority:
            owner, since = last.owner, last.since
            self.release(last)
            if owner is not None and owner.alive:
                owner.interrupt(Preempted(request.owner, since))

    def release(self, request: Request) -> None:
        """Releases a place, or withdraws a request that waits; a second call has no effect."""
        if request._state == _HELD:
            request._state = _GONE
            self.used -= 1
            if self._ordered:
                del self._holders[request]
            if self._waiting:
                self._grant()
        elif request._state == _WAITS:
            request._state = _GONE
            self._waiting -= 1

    def _grant(self) -> None:
        while True:
            request = heappop(self._urgent)[2] if self._ordered else self._queue.popleft()
            if request._state == _WAITS:
                break
        self._waiting -= 1
        self.used += 1
        request._state = _HELD
        if self._ordered:
            request.since = self.sim.now
            self._holders[request] = None
        request.succeed(request)


class Acquire(Event):
    """A request for permits of a semaphore."""

    __slots__ = ("_gone", "amount", "semaphore")

    def __init__(self, semaphore: Semaphore, amount: int) -> None:
        super().__init__(semaphore.sim)
        self.semaphore = semaphore
        self.amount = amount
        self._gone = False

    def cancel(self) -> None:
        """Withdraws the request; it has no effect if the permits were granted."""
        if self.callbacks is not None and not self._gone:
            self._gone = True
            self.semaphore._serve()

    def describe(self) -> str:
        """A description for messages."""
        return f"{self.amount} of {self.semaphore.name} ({self.semaphore.free} free)"


class Semaphore:
    """`count` permits without owners, so any process may release them. Requests are served in order, so a small one waits behind a large
    one.
    """

    def __init__(self, sim: Simulation, count: int, name: str = "semaphore") -> None:
        self.sim = sim
        self.name = name
        #: The number of free permits.
        self.free = whole(count, f"{name}: count", 0)
        self._queue: deque[Acquire] = deque()

    def acquire(self, amount: int = 1) -> Acquire:
        """Requests permits; the event happens when all of them are granted."""
        wanted = Acquire(self, whole(amount, f"{self.name}: amount"))
        self._queue.append(wanted)
        self._serve()
        return wanted

    def release(self, amount: int = 1) -> None:
        """Releases permits, or adds new ones."""
        self.free += whole(amount, f"{self.name}: amount")
        self._serve()

    def _serve(self) -> None:
        queue = self._queue
        while queue and (queue[0]._gone or queue[0].amount <= self.free):
            wanted = queue.popleft()
            if not wanted._gone:
                self.free -= wanted.amount
                wanted.succeed()


class Barrier:
    """Holds processes until `parties` of them have arrived, releases them all at once, and starts again."""

    def __init__(self, sim: Simulation, parties: int, name: str = "barrier") -> None:
        self.sim = sim
        self.name = name
        self.parties = whole(parties, f"{name}: parties")
        #: The number of completed rounds.
        self.rounds = 0
        self.arrived = 0
        self._open = self._gate()

    def _gate(self) -> Event:
        return _Gate(self)

    def arrive(self) -> Event:
        """Arrives at the barrier; the event happens, with the number of the round, when all have arrived."""
        gate = self._open
        self.arrived += 1
        if self.arrived == self.parties:
            self.arrived = 0
            self._open = self._gate()
            gate.succeed(self.rounds)
            self.rounds += 1
        return gate

    def wait(self) -> Any:
        """Arrives at the barrier, and blocks the calling spawned process until all have arrived."""
        return self.arrive().wait()


class _Gate(Event):
    __slots__ = ("_barrier",)

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(barrier.sim)
        self._barrier = barrier

    def describe(self) -> str:
        return f"{self._barrier.name} ({self._barrier.arrived} of {self._barrier.parties} have arrived)"
