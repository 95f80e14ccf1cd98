"""What only so many may hold at once: a resource, a semaphore, a barrier.

    with tool.request() as held:
        yield held          # in a spawned process: held.wait()
        yield 3.0

A `with` block gives back, or withdraws, whatever way it is left; without one, call `release()`.
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
    """`value` as a whole number, `least` or more; anything else is an `InputError`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise InputError(f"{what}: found {value!r}; expected a whole number, {least} or more")
    return int(value.__index__())


@dataclass(frozen=True)
class Preempted:
    """Cause of the `Interrupted` that a holder gets: who took its place, and since when it held it."""

    by: Process | None
    since: float


class Request(Event):
    """A place in a resource: asked for, held (when it has happened), given back."""

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
        #: The process that asked, None outside processes.
        self.owner = sim.active
        #: When it was granted.
        self.since = 0.0
        self._state = _WAITS

    def release(self) -> None:
        """Give the place back, or withdraw the request when it waits still; no effect the second time."""
        self.resource.release(self)

    cancel = release

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exception: object) -> None:
        self.resource.release(self)

    def describe(self) -> str:
        """What it is, for messages."""
        return f"a place in {self.resource.name} ({self.resource.used} of {self.resource.capacity} held)"


class Resource:
    """`capacity` places; who asks when none is free waits, first come first served or by priority.

    With `policy="priority"`, lower priorities go first and, asked with `preempt=True`, take the place of the holder that is least
    urgent, if it is less urgent; that one is interrupted with the cause `Preempted`.
    """

    def __init__(self, sim: Simulation, capacity: int = 1, policy: str = "fifo", name: str = "resource") -> None:
        if policy not in POLICIES:
            raise unknown("policy", str(policy), POLICIES, where=name)
        self.sim = sim
        self.capacity = whole(capacity, f"{name}: capacity")
        self.policy = policy
        self.name = name
        #: Places held.
        self.used = 0
        self._ordered = policy == "priority"
        self._queue: deque[Request] = deque()
        self._urgent: list[tuple[float, int, Request]] = []
        # Holders in the order of their grants; kept only where some may be preempted.
        self._holders: dict[Request, None] = {}
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    def request(self, priority: float = 0, *, preempt: bool = False) -> Request:
        """Ask for a place; the request is an event that happens when it is held."""
        request = Request(self, priority)
        if self.used < self.capacity:
            # Places are only free when nobody waits.
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
        """Give a place back, or withdraw a request that waits; no effect the second time."""
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
    """Permits asked of a semaphore."""

    __slots__ = ("_gone", "amount", "semaphore")

    def __init__(self, semaphore: Semaphore, amount: int) -> None:
        super().__init__(semaphore.sim)
        self.semaphore = semaphore
        self.amount = amount
        self._gone = False

    def cancel(self) -> None:
        """Stop asking; no effect when the permits were got."""
        if self.callbacks is not None and not self._gone:
            self._gone = True
            self.semaphore._serve()

    def describe(self) -> str:
        """What it is, for messages."""
        return f"{self.amount} of {self.semaphore.name} ({self.semaphore.free} free)"


class Semaphore:
    """`count` permits without owners: anyone may give back. First come, first served: a small request waits behind a large one."""

    def __init__(self, sim: Simulation, count: int, name: str = "semaphore") -> None:
        self.sim = sim
        self.name = name
        #: Permits that nobody has.
        self.free = whole(count, f"{name}: count", 0)
        self._queue: deque[Acquire] = deque()

    def acquire(self, amount: int = 1) -> Acquire:
        """Ask for permits; the event happens when all of them were got."""
        wanted = Acquire(self, whole(amount, f"{self.name}: amount"))
        self._queue.append(wanted)
        self._serve()
        return wanted

    def release(self, amount: int = 1) -> None:
        """Give permits back, or add new ones."""
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
    """Lets nobody pass until `parties` have arrived, then all at once; and again."""

    def __init__(self, sim: Simulation, parties: int, name: str = "barrier") -> None:
        self.sim = sim
        self.name = name
        self.parties = whole(parties, f"{name}: parties")
        #: How often all have arrived.
        self.rounds = 0
        self.arrived = 0
        self._open = self._gate()

    def _gate(self) -> Event:
        return _Gate(self)

    def arrive(self) -> Event:
        """Arrive; the event happens, with the number of the round, when all have."""
        gate = self._open
        self.arrived += 1
        if self.arrived == self.parties:
            self.arrived = 0
            self._open = self._gate()
            gate.succeed(self.rounds)
            self.rounds += 1
        return gate

    def wait(self) -> Any:
        """Arrive and block the spawned process that calls this until all have."""
        return self.arrive().wait()


class _Gate(Event):
    __slots__ = ("_barrier",)

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(barrier.sim)
        self._barrier = barrier

    def describe(self) -> str:
        return f"{self._barrier.name} ({self._barrier.arrived} of {self._barrier.parties} have arrived)"
