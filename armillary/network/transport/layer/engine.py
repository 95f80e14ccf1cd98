"""The engine of a stream: what publishers and subscribers wait for, transaction by transaction.

Each call returns an event to wait for, or None. Nothing of an instant is decided before everybody of that instant has called, so actors
that start together are seen together, whatever their order. Two kinds differ in what a transaction waits for: files and staging.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from armillary.engine import Event, Simulation
from armillary.errors import InputError
from armillary.network.transport.blocks.decomposition import Ints
from armillary.network.transport.simulation.transfers import Floats, Transfers

from .variable import Variable

#: After everybody of an instant has called, and before transfers of the instant begin.
AFTER_CALLS = 800


class EndOfStream(Exception):
    """The last publisher has closed, and no further transaction will come."""


class TransactionCancelled(Exception):
    """The transaction was cancelled."""


class Waiting(Event):
    """Something that actors of a stream wait for; a deadlock names it."""

    __slots__ = ("_said",)

    def __init__(self, sim: Simulation, said: str) -> None:
        super().__init__(sim)
        self._said = said

    def describe(self) -> str:
        """What is missing."""
        return self._said


class Engine:
    """What both engines share: who is there, which transaction is under way, and what each subscriber has asked for."""

    kind = ""

    def __init__(self, name: str, sim: Simulation, transfers: Transfers) -> None:
        self.name, self.sim, self.transfers = name, sim, transfers
        self.variables: dict[str, Variable] = {}
        #: The node of each publisher and subscriber that ever opened.
        self.publishers: list[int] = []
        self.subscribers: list[int] = []
        self.open_publishers = 0
        self.open_subscribers = 0
        #: Transactions that publishers have opened and completed.
        self.opened = 0
        self.completed = 0
        self.in_progress = False
        self.ended = False
        self.cancelled = False
        #: Transfers of publishers that are not done.
        self.left = 0
        self._arrived = 0
        self._closing = 0
        self._puts: dict[str, set[int]] = {}
        #: By transaction, which publishers put which variable.
        self.published: dict[int, dict[str, set[int]]] = {}
        #: By subscriber: transactions begun, the first and the last that it wants, and the selections of the current one.
        self.begun: list[int] = []
        #: The transaction that each subscriber has ended last.
        self.asked: list[int] = []
        self._last: list[int | None] = []
        self._wants: list[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = []
        self._missing = np.zeros(0, np.int64)
        self._done: dict[int, Waiting] = {}
        self._ready: list[int] = []
        self._events: dict[tuple[str, int], Waiting] = {}
        self._due = False
        self._node_of_publisher = np.zeros(0, np.int64)

    # Opening and closing

    def open_publisher(self, node: int) -> int:
        """Adds a publisher; returns its number."""
        if self.ended:
            raise InputError("found a publisher that opens after the last one has closed; expected all before", where=self.name)
        self.publishers.append(node)
        self.open_publishers += 1
        return len(self.publishers) - 1

    def open_subscriber(self, node: int) -> int:
        """Adds a subscriber; returns its number."""
        self.subscribers.append(node)
        self.open_subscribers += 1
        self.begun.append(0)
        self.asked.append(0)
        self._last.append(None)
        self._wants.append({})
        return len(self.subscribers) - 1

    def close_publisher(self) -> Event | None:
        """Leaves once the last writes or sends are done; the last one to leave ends the stream."""
        self._closing += 1
        self._look()
        return self._event("closed", 0, "the last transfers") if self.left else None

    def close_subscriber(self, subscriber: int) -> None:
        """Leaves at once; a transaction that it has begun and not ended goes on without it."""
        self.open_subscribers -= 1
        if self.asked[subscriber] < self.begun[subscriber]:
            self._leaves(self.begun[subscriber])
        self._look()

    # Transactions of publishers

    def begin_publisher(self) -> Event | None:
        """Opens the next transaction, or joins it."""
        self._refuse_cancelled()
        if not self.in_progress:
            self.in_progress = True
            self.opened += 1
            self._puts = {}
        return self._may_start()

    def put(self, publisher: int, variable: Variable) -> None:
        """Publishes this publisher's block in the transaction."""
        if not self.in_progress:
            raise InputError("found put outside a transaction; expected it between begin and end", where=self.name)
        self._puts.setdefault(variable.name, set()).add(publisher)

    def end_publisher(self, publisher: int) -> Event | None:
        """Ends the transaction for one publisher."""
        if not self.in_progress:
            raise InputError("found end without begin", where=self.name)
        self._arrived += 1
        self._ended(publisher)
        self._look()
        return self._event("ended", self.opened, f"all publishers of {self.name} to end transaction {self.opened}")

    # Transactions of subscribers

    def select_transactions(self, subscriber: int, first: int, many: int) -> None:
        """Limits what a subscriber takes to `many` transactions from number `first`, counted from 1."""
        for what, value in (("first", first), ("many", many)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{what}: found {value!r}; expected a whole number of 1 or more", where=self.name)
        if self.kind == "staging" and first != 1:
            raise InputError("found a selection of transactions with Staging, which keeps none; expected the engine File", where=self.name)
        if self.ended and first + many - 1 > self.completed:
            said = f"found transactions {first} to {first + many - 1}; expected 1 to {self.completed}, which were published"
            raise InputError(said, where=self.name)
        self.begun[subscriber], self._last[subscriber] = first - 1, first + many - 1

    def begin_subscriber(self, subscriber: int) -> Event | None:
        """Begins the next transaction; it may have to wait until publishers have completed it."""
        self._refuse_cancelled()
        number = self.begun[subscriber] + 1
        last = self._last[subscriber]
        if last is not None and number > last:
            raise EndOfStream(f"{self.name}: all selected transactions were taken")
        if self.completed < number and self.ended:
            if last is not None:
                raise InputError(f"found a selection of transaction {number}; expected 1 to {self.completed}", where=self.name)
            raise EndOfStream(f"{self.name}: the last publisher has closed")
        self.begun[subscriber] = number
        self._wants[subscriber] = {}
        self._begins(number)
        self._look()
        return None if self.completed >= number else self._event("completed", number, self._publishers_missing(number))

    def get(self, subscriber: int, variable: Variable, start: tuple[int, ...], count: tuple[int, ...]) -> None:
        """Asks for a part of a variable."""
        self._wants[subscriber][variable.name] = (start, count)

    def end_subscriber(self, subscriber: int) -> Event | None:
        """Ends the transaction for one subscriber when all that it asked for has arrived."""
        done = self._done[subscriber] = Waiting(self.sim, f"the data of transaction {self.begun[subscriber]} of {self.name}")
        self.asked[subscriber] = self.begun[subscriber]
        self._asks(subscriber)
        self._look()
        return done

    def cancel(self) -> None:
        """Cancels the transaction under way, and with it the stream: everybody who waits, and whoever begins again, gets an error."""
        self.cancelled = True
        self._look()

    # What an instant brings

    def _look(self) -> None:
        if not self._due:
            self._due = True
            self.sim.at(self.sim.now, self._settle, priority=AFTER_CALLS)

    def _settle(self) -> None:
        self._due = False
        if self.cancelled:
            self._release(TransactionCancelled(f"{self.name}: the transaction was cancelled"))
            return
        if self._arrived and self._arrived == self.open_publishers and self.completed < self.opened:
            self.completed += 1
            self.published[self.completed] = self._puts
            self._fire("completed", self.completed)
        self._progress()
        if self._closing and not self.left:
            self._fire("closed", 0)
            self.open_publishers -= self._closing
            self._closing = 0
            if not self.open_publishers:
                self.ended = True
                self._fail_waiting("completed", EndOfStream(f"{self.name}: the last publisher has closed"))
        if self._ready:
            ready, self._ready = self._ready, []
            self._fetch(ready)

    def _fetch(self, ready: list[int]) -> None:
        """Starts what these subscribers asked for, all at once."""
        if len(self._missing) < len(self.subscribers):
            self._missing = np.concatenate([self._missing, np.zeros(len(self.subscribers) - len(self._missing), np.int64)])
        if len(self._node_of_publisher) < len(self.publishers):
            self._node_of_publisher = np.array(self.publishers, np.int64)
        nodes = np.array(self.subscribers, np.int64)
        for name, variable in self.variables.items():
            asking = [s for s in ready if name in self._wants[s]]
            if not asking:
                continue
            for number in {self.begun[s] for s in asking}:
                self._get(variable, number, [s for s in asking if self.begun[s] == number], nodes)
        self._satisfied([s for s in ready if self._missing[s] == 0])

    def _get(self, variable: Variable, number: int, asking: list[int], nodes: Ints) -> None:
        """Moves one variable of one transaction."""
        name = variable.name
        if name not in self.published[number]:
            raise InputError(f"found get of {name} in transaction {number}; expected a variable that was put in it", where=self.name)
        start = np.array([self._wants[s][name][0] for s in asking], np.int64)
        count = np.array([self._wants[s][name][1] for s in asking], np.int64)
        parts = variable.parts(start, count)
        owner = np.array(asking, np.int64)[parts.subscriber]
        nbytes = variable.reduction.bytes_of(parts.elements, variable.itemsize, name, number)
        np.add.at(self._missing, owner, 1)
        self._move(self._node_of_publisher[parts.publisher], nodes[owner], nbytes, owner)

    def _got(self, owners: Ints) -> None:
        if len(owners) == 1:
            self._missing[owners[0]] -= 1
            after = owners.tolist()
        else:
            np.subtract.at(self._missing, owners, 1)
            after = np.unique(owners).tolist()
        self._satisfied([s for s in after if self._missing[s] == 0])
        self._part_done(len(owners))

    def _satisfied(self, subscribers: Iterable[int]) -> None:
        for s in subscribers:
            done = self._done.pop(s, None)
            if done is not None:
                done.succeed()

    # What the kinds differ in

    def _may_start(self) -> Event | None:
        raise NotImplementedError

    def _ended(self, publisher: int) -> None:
        raise NotImplementedError

    def _progress(self) -> None:
        raise NotImplementedError

    def _begins(self, number: int) -> None:
        """A subscriber has begun a transaction."""

    def _leaves(self, number: int) -> None:
        """A subscriber has left in the middle of a transaction."""

    def _asks(self, subscriber: int) -> None:
        raise NotImplementedError

    def _move(self, source: Ints, target: Ints, nbytes: Floats, owner: Ints) -> None:
        raise NotImplementedError

    def _part_done(self, many: int) -> None:
        """Some parts have arrived."""

    # Events

    def _event(self, what: str, number: int, said: str) -> Waiting:
        key = (what, number)
        found = self._events.get(key)
        if found is None:
            found = self._events[key] = Waiting(self.sim, said)
        return found

    def _fire(self, what: str, number: int) -> None:
        found = self._events.pop((what, number), None)
        if found is not None:
            found.succeed()

    def _fail_waiting(self, what: str, error: Exception) -> None:
        for key in [key for key in self._events if key[0] == what]:
            _fail(self._events.pop(key), error)

    def _release(self, error: Exception) -> None:
        waiting = [*self._events.values(), *self._done.values()]
        self._events.clear()
        self._done.clear()
        for event in waiting:
            _fail(event, error)

    def _refuse_cancelled(self) -> None:
        if self.cancelled:
            raise TransactionCancelled(f"{self.name}: the transaction was cancelled")

    def _publishers_missing(self, number: int) -> str:
        many = self.open_publishers
        return f"transaction {number} of {self.name} (no publisher has opened it)" if not many else f"transaction {number} of {self.name}"


def _fail(event: Event, error: Exception) -> None:
    if event.callbacks:
        event.fail(error)
