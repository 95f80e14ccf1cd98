"""Buffers of items and amounts: a store, a queue, a level, and a mailbox.

Each request is an event; one that can be served at once has already happened when it is returned, and waiting for it does not block. A
request that is no longer wanted must be withdrawn with `cancel()`, or made in a `with` block.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.engine.events import Event
from armillary.engine.resources import whole
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.simulation import Simulation


class Want(Event):
    """A request to put or to get; withdraw it with `cancel()`, or use it in a `with` block."""

    __slots__ = ("_at", "_gone", "_matches", "item")

    def __init__(self, at: Any, item: Any, matches: Callable[[Any], bool] | None = None) -> None:
        self.sim = at.sim
        self.name = None
        self.callbacks = []
        self.value = None
        self._error = None
        self._heard = False
        self._at = at
        self._gone = False
        self._matches = matches
        #: The item to put, None for a request to get, or the amount for a level.
        self.item = item

    def cancel(self) -> None:
        """Withdraws the request; it has no effect once the request has happened."""
        if self.callbacks is not None and not self._gone:
            self._gone = True
            self._at._withdrawn()

    def __enter__(self) -> Want:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cancel()

    def describe(self) -> str:
        """A description for messages."""
        return self._at._says(self)


class Store:
    """A queue of items with room for `capacity` of them; puts wait for room and gets wait for items, in order of arrival.

    `get(matches)` takes the first item for which `matches(item)` is true; a get that finds nothing does not block those behind it.
    """

    def __init__(self, sim: Simulation, capacity: float = math.inf, name: str = "store") -> None:
        self.sim = sim
        self.name = name
        self.capacity = capacity if capacity == math.inf else whole(capacity, f"{name}: capacity")
        #: The items, oldest first.
        self.items: deque[Any] = deque()
        self._puts: deque[Want] = deque()
        self._gets: deque[Want] = deque()

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Any) -> Want:
        """Puts an item in; the event happens when there is room."""
        want = Want(self, item)
        items = self.items
        if not self._puts and len(items) < self.capacity:
            want.callbacks = None
            gets = self._gets
            if gets and not items:
                # The usual case, in which a get waits and the store is empty.
                get = gets[0]
                if get._matches is None and not get._gone:
                    gets.popleft()
                    get.succeed(item)
                    return want
            items.append(item)
            if gets:
                self._serve()
        else:
            self._puts.append(want)
        return want

    def get(self, matches: Callable[[Any], bool] | None = None) -> Want:
        """Takes the first item, or the first that `matches`; it becomes the value of the event."""
        want = Want(self, None, matches)
        if matches is None and not self._gets and self.items:
            want.callbacks = None
            want.value = self.items.popleft()
            if self._puts:
                self._serve()
        else:
            self._gets.append(want)
            if self.items:
                self._serve()
        return want

    def _withdrawn(self) -> None:
        self._serve()

    def _serve(self) -> None:
        moved = True
        while moved:
            moved = False
            while self._puts and (self._puts[0]._gone or len(self.items) < self.capacity):
                put = self._puts.popleft()
                if not put._gone:
                    self.items.append(put.item)
                    put.succeed()
            left: deque[Want] = deque()
            while self._gets:
                get = self._gets.popleft()
                if get._gone:
                    continue
                at = self._find(get)
                if at < 0:
                    left.append(get)
                    if get._matches is None:
                        break
                else:
                    item = self.items[at]
                    del self.items[at]
                    get.succeed(item)
                    moved = True
            self._gets.extendleft(reversed(left))

    def _find(self, get: Want) -> int:
        if get._matches is None:
            return 0 if self.items else -1
        return next((i for i, item in enumerate(self.items) if get._matches(item)), -1)

    def _says(self, want: Want) -> str:
        room = "" if self.capacity == math.inf else f" of {self.capacity}"
        return f"{'get from' if want in self._gets else 'put into'} {self.name} (holds {len(self.items)}{room})"


class Queue:
    """A store without bounds or filters, whose `put` is a plain call that returns no event."""

    def __init__(self, sim: Simulation, name: str = "queue") -> None:
        self.sim = sim
        self.name = name
        self.items: deque[Any] = deque()
        self._gets: deque[Want] = deque()

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Any) -> None:
        """Puts an item in."""
        while self._gets:
            get = self._gets.popleft()
            if not get._gone:
                get.succeed(item)
                return
        self.items.append(item)

    def get(self) -> Want:
        """Takes the first item; it becomes the value of the event."""
        want = Want(self, None)
        if self.items:
            want.callbacks = None
            want.value = self.items.popleft()
        else:
            self._gets.append(want)
        return want

    def _withdrawn(self) -> None:
        pass

    def _says(self, want: Want) -> str:
        return f"get from {self.name} (empty)"


class Level:
    """A continuous amount between 0 and `capacity`, such as fuel, bytes of a buffer or credits. Puts and gets are each served in order."""

    def __init__(self, sim: Simulation, capacity: float = math.inf, amount: float = 0.0, name: str = "level") -> None:
        self.sim = sim
        self.name = name
        if not capacity > 0:
            raise InputError(f"{name}: capacity: found {capacity!r}; expected more than 0")
        self.capacity = float(capacity)
        if not 0 <= amount <= self.capacity:
            raise InputError(f"{name}: amount: found {amount!r}; expected 0 to {self.capacity!r}")
        #: The current amount.
        self.amount = float(amount)
        self._puts: deque[Want] = deque()
        self._gets: deque[Want] = deque()

    def put(self, amount: float) -> Want:
        """Adds an amount; the event happens when there is room for all of it."""
        return self._ask(self._puts, amount)

    def get(self, amount: float) -> Want:
        """Takes an amount; the event happens when all of it is available."""
        return self._ask(self._gets, amount)

    def _ask(self, queue: deque[Want], amount: float) -> Want:
        if not 0 < amount <= self.capacity:
            raise InputError(f"{self.name}: found {amount!r}; expected an amount above 0, at most {self.capacity!r}")
        want = Want(self, float(amount))
        queue.append(want)
        self._withdrawn()
        return want

    def _withdrawn(self) -> None:
        moved = True
        while moved:
            moved = False
            for queue, sign in ((self._puts, 1.0), (self._gets, -1.0)):
                while queue and (queue[0]._gone or 0.0 <= self.amount + sign * queue[0].item <= self.capacity):
                    want = queue.popleft()
                    if not want._gone:
                        self.amount += sign * want.item
                        want.succeed(want.item)
                        moved = True

    def _says(self, want: Want) -> str:
        return f"{'get' if want in self._gets else 'put'} {want.item:g} at {self.name} (holds {self.amount:g} of {self.capacity:g})"


class Mailbox:
    """Rendezvous by key: a put and a get of one key happen together, once both were requested, in order."""

    def __init__(self, sim: Simulation, name: str = "mailbox") -> None:
        self.sim = sim
        self.name = name
        # For each key, at least one of the two is empty.
        self._puts: dict[Any, deque[Want]] = {}
        self._gets: dict[Any, deque[Want]] = {}

    def put(self, key: Any, item: Any = None) -> Want:
        """Hands an item over; the event happens when a get takes it."""
        return self._meet(key, Want(self, item), self._gets, self._puts)

    def get(self, key: Any) -> Want:
        """Takes an item that is handed over; it becomes the value of the event."""
        return self._meet(key, Want(self, None), self._puts, self._gets)

    def _meet(self, key: Any, want: Want, others: dict[Any, deque[Want]], own: dict[Any, deque[Want]]) -> Want:
        waiting = others.get(key)
        while waiting:
            other = waiting.popleft()
            if not waiting:
                del others[key]
            if not other._gone:
                other.succeed(want.item)
                want.callbacks = None
                want.value = other.item
                return want
        own.setdefault(key, deque()).append(want)
        return want

    def _withdrawn(self) -> None:
        for queues in (self._puts, self._gets):
            for key in [k for k, q in queues.items() if all(w._gone for w in q)]:
                del queues[key]

    def _says(self, want: Want) -> str:
        for verb, queues in (("get", self._gets), ("put", self._puts)):
            for key, queue in queues.items():
                if want in queue:
                    return f"{verb} {key!r} at {self.name}"
        return self.name
