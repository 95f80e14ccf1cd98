"""One role's side of a running session. This module is all that generated endpoints need, and it needs nothing but Python.

A `Session` follows a table of states. It sends only what the state permits and checks payloads before that. It takes the first message
that the state permits, keeps those that come too early, throws stale ones away, and refuses those that can never be permitted. Messages
carry the instance and the side of every mixed choice that they stand in (tags); on wires that have none the table's discards serve.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
K = TypeVar("K")
#: (mixed choice, instance, side)
Tag = tuple[int, int, str]
#: Messages that may wait at one role until it takes them.
MOST_WAITING = 1024
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,), "bytes": (bytes,), "bool": (bool,)}


class ProtocolError(Exception):
    """Somebody does what the protocol does not permit."""


class Reused(ProtocolError):
    """A state object was used twice; each stands for one moment of the session."""


class WrongPayload(ProtocolError, TypeError):
    """A payload that the message does not have; nothing was sent."""


class Overfull(ProtocolError):
    """More messages wait than may."""


class Unexpected(ProtocolError):
    """A message came that can never be received."""

    def __init__(self, role: str, state: int, expected: tuple[str, ...], got: str) -> None:
        super().__init__(f"role {role}, state {state}: found {got}; expected {' or '.join(expected) or 'nothing more'}")
        self.role, self.state, self.expected, self.got = role, state, expected, got


@dataclass(frozen=True, slots=True)
class Message:
    """What goes from one role to another; `number` counts the messages of this ordered pair from 0, and -1 is unknown."""

    sender: str
    receiver: str
    label: str
    payload: tuple[Any, ...] = ()
    tags: tuple[Tag, ...] = ()
    number: int = -1


class Transport(Protocol):
    """Two coroutines: one that sends, and one that gives the next message for this role, whoever it is from."""

    async def send(self, message: Message, /) -> None:
        """Hands a message over."""

    async def receive(self) -> Message:
        """Waits for the next message."""


class Step(NamedTuple):
    """One message that a state permits: see `armillary.trust.protocols.checking.machine.Step`."""

    send: bool
    peer: str
    label: str
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    target: int = 0
    path: tuple[tuple[int, str], ...] = ()
    fresh: tuple[int, ...] = ()
    decides: tuple[tuple[int, str | None], ...] = ()

    def __str__(self) -> str:
        return f'"{self.label}" {"to" if self.send else "from"} {self.peer}'


class StateRow(NamedTuple):
    """A state's steps and its stale messages (sender, label)."""

    steps: tuple[Step, ...]
    discards: tuple[tuple[str, str], ...] = ()


class Ahead(Generic[K]):
    """From which states something can still happen; looked up once per thing, because a table of all states and things could be huge."""

    def __init__(self, here: Sequence[Collection[K]], targets: Sequence[Sequence[int]]) -> None:
        self._at: dict[K, list[int]] = {}
        for state, things in enumerate(here):
            for thing in things:
                self._at.setdefault(thing, []).append(state)
        self._before: list[list[int]] = [[] for _ in here]
        for state, following in enumerate(targets):
            for target in following:
                self._before[target].append(state)
        self._found: dict[K, set[int]] = {}

    def has(self, state: int, thing: K) -> bool:
        """Whether it can happen in this state or in any state after it."""
        if thing not in self._at:
            return False
        found = self._found.get(thing)
        if found is None:
            order = list(self._at[thing])
            found = self._found[thing] = set(order)
            for at in order:
                for one in self._before[at]:
                    if one not in found:
                        found.add(one)
                        order.append(one)
        return state in found


@dataclass(frozen=True)
class Table:
    """A role's machine as plain data."""

    role: str
    states: tuple[StateRow, ...]

    @functools.cached_property
    def receives(self) -> tuple[dict[tuple[str, str], list[Step]], ...]:
        """For each state its receives by (sender, label)."""
        made: list[dict[tuple[str, str], list[Step]]] = []
        for row in self.states:
            found: dict[tuple[str, str], list[Step]] = {}
            for step in row.steps:
                if not step.send:
                    found.setdefault((step.peer, step.label), []).append(step)
            made.append(found)
        return tuple(made)

    @functools.cached_property
    def later(self) -> Ahead[tuple[str, str]]:
        """Whether a message (sender, label) can be received or thrown away in a state or after it."""
        here = [set(row.discards) | {(s.peer, s.label) for s in row.steps if not s.send} for row in self.states]
        return Ahead(here, [[s.target for s in row.steps] for row in self.states])

    @functools.cached_property
    def later_tagged(self) -> Ahead[tuple[str, str, tuple[tuple[int, str], ...]]]:
        """Whether a message (sender, label, sides of mixed choices) can be received in a state or after it."""
        here = [{(s.peer, s.label, s.path) for s in row.steps if not s.send} for row in self.states]
        return Ahead(here, [[s.target for s in row.steps] for row in self.states])

    @functools.cached_property
    def inner(self) -> dict[int, frozenset[int]]:
        """For each mixed choice those that stand inside of it."""
        found: dict[int, set[int]] = {}
        for row in self.states:
            for step in row.steps:
                for i, (k, _) in enumerate(step.path):
                    found.setdefault(k, set()).update(other for other, _ in step.path[i + 1 :])
        return {k: frozenset(inside) for k, inside in found.items()}

    @functools.cached_property
    def types(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The payload types of what the role may receive, by (sender, label)."""
        return {(s.peer, s.label): s.types for row in self.states for s in row.steps if not s.send}


@dataclass
class Instances:
    """How often a role has entered each mixed choice, and the side that it holds in the present instance."""

    inner: dict[int, frozenset[int]]
    counts: dict[int, int] = field(default_factory=dict)
    sides: dict[int, str | None] = field(default_factory=dict)

    def take(self, step: Step) -> tuple[Tag, ...]:
        """Follows a step; returns the tags of its message."""
        if not step.path:
            return ()
        for k, _ in step.path:
            if k in step.fresh:
                self.counts[k] = self.counts.get(k, 0) + 1
                for other in self.inner.get(k, ()):
                    self.counts[other], self.sides[other] = 0, None
        for k, side in step.decides:
            self.sides[k] = side
        return tuple((k, self.counts.get(k, 0), side) for k, side in step.path)

    def stale(self, tags: tuple[Tag, ...]) -> bool:
        """Whether a message belongs to an instance that is over, or to the side that was not taken."""
        for k, instance, side in tags:
            now, held = self.counts.get(k, 0), self.sides.get(k)
            if instance < now or (instance == now and held is not None and held != side):
                return True
            if instance > now:
                return False
        return False

    def fits(self, step: Step, tags: tuple[Tag, ...]) -> bool:
        """Whether a message with these tags is the one that a step means."""
        if len(tags) != len(step.path):
            return False
        begun: set[int] = set()
        for (k, side), (tag_k, instance, tag_side) in zip(step.path, tags):
            now = 0 if any(k in self.inner.get(other, ()) for other in begun) else self.counts.get(k, 0)
            if (k, side, now + (k in step.fresh)) != (tag_k, tag_side, instance):
                return False
            if k in step.fresh:
                begun.add(k)
        return True


def check_payload(names: tuple[str, ...], types: tuple[str, ...], payload: tuple[Any, ...]) -> None:
    """Raises `WrongPayload` unless the values are of these types."""
    if len(payload) != len(types):
        raise WrongPayload(f"found {len(payload)} values; expected {len(types)} ({', '.join(names) or 'none'})")
    for name, kind, value in zip(names, types, payload):
        if not is_of(kind, value):
            raise WrongPayload(f"{name}: found {type(value).__name__}; expected {kind}")


def is_of(kind: str, value: Any) -> bool:
    """Whether a value is of a payload type."""
    if kind.endswith("[]"):
        return isinstance(value, list) and all(is_of(kind[:-2], one) for one in value)
    if kind == "json":
        return _is_json(value, 64)
    return isinstance(value, _PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))


def _is_json(value: Any, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one, depth - 1) for key, one in value.items())
    if isinstance(value, list):
        return all(_is_json(one, depth - 1) for one in value)
    return value is None or isinstance(value, str | int | float)


class Session:
    """A role in one run of a protocol; `state` is where it is, `discarded` how many stale messages it has thrown away."""

    def __init__(
        self, table: Table, transport: Transport, *, tags: bool = True, carry: bool | None = None, most_waiting: int = MOST_WAITING
    ) -> None:
        self.table = table
        self.transport = transport
        #: Whether tags decide what is stale; `carry` sends them all the same, for someone who watches.
        self.tags = tags
        self.carry = tags if carry is None else carry
        self.most_waiting = most_waiting
        self.state = 0
        self.discarded = 0
        self.sent = 0
        #: Counts every use, so that a state object knows whether it is still the present one.
        self.moment = 0
        self.instances = Instances(table.inner)
        self._waiting: dict[str, deque[Message]] = {}
        self._many = 0
        self._numbers: dict[str, int] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return not self.table.states[self.state].steps

    async def send(self, step: Step, payload: tuple[Any, ...]) -> None:
        """Sends what a step says, after a look at the payload."""
        check_payload(step.names, step.types, payload)
        tags = self.instances.take(step)
        number = self._numbers.get(step.peer, 0)
        self._numbers[step.peer] = number + 1
        self.state, self.moment, self.sent = step.target, self.moment + 1, self.sent + 1
        await self.transport.send(Message(self.table.role, step.peer, step.label, payload, tags if self.carry else (), number))

    async def receive(self) -> tuple[Step, Message]:
        """Waits for a message that the state permits."""
        while True:
            found = self.look()
            if found is not None:
                return found
            self._keep(await self.transport.receive())

    def _keep(self, message: Message) -> None:
        if self._many >= self.most_waiting:
            raise Overfull(f"role {self.table.role}: found more than {self.most_waiting} messages that nobody takes; expected fewer")
        self._waiting.setdefault(message.sender, deque()).append(message)
        self._many += 1

    def poll(self) -> tuple[Step, Message] | None:
        """The same as `receive`, without waiting, where the transport can say what has arrived (`take`)."""
        found = self.look()
        take = getattr(self.transport, "take", None)
        while found is None and take is not None and (message := take()) is not None:
            self._keep(message)
            found = self.look()
        return found

    def look(self) -> tuple[Step, Message] | None:
        """A message that has come and that the state permits; stale ones are thrown away on the way."""
        for waiting in self._waiting.values():
            while waiting:
                head = waiting[0]
                step = self._reaction(head)
                if step is None:
                    break
                waiting.popleft()
                self._many -= 1
                if isinstance(step, Step):
                    check_payload(step.names, step.types, head.payload)
                    self.instances.take(step)
                    self.state, self.moment = step.target, self.moment + 1
                    return step, head
                self.discarded += 1
        return None

    def _reaction(self, message: Message) -> Step | bool | None:
        """The step that a message is for, True to throw it away, or None to keep it for later."""
        key = (message.sender, message.label)
        steps = self.table.receives[self.state].get(key, ())
        if self.tags:
            if self.instances.stale(message.tags):
                return True
            for step in steps:
                if self.instances.fits(step, message.tags):
                    return step
            # What stands at another place of the protocol can never fit, whatever its label.
            if self.table.later_tagged.has(self.state, (*key, tuple((k, side) for k, _, side in message.tags))):
                return None
        elif steps:
            return steps[0]
        elif key in self.table.states[self.state].discards:
            return True
        elif self.table.later.has(self.state, key):
            return None
        expected = tuple(str(step) for step in self.table.states[self.state].steps)
        raise Unexpected(self.table.role, self.state, expected, f'"{message.label}" from {message.sender}')


class State:
    """One moment of a session. Its methods are what the protocol permits now, and each returns the next moment."""

    number = 0

    def __init__(self, session: Session) -> None:
        self._session = session
        self._moment = session.moment

    def _fresh(self) -> Session:
        if self._session.moment != self._moment:
            raise Reused(f"found a second use of {type(self).__name__}; expected each state object to be used once")
        return self._session

    def _step(self, index: int) -> Step:
        return self._session.table.states[self.number].steps[index]

    async def _say(self, index: int, payload: tuple[Any, ...]) -> None:
        await self._fresh().send(self._step(index), payload)

    async def _hear(self) -> tuple[Step, Message]:
        return await self._fresh().receive()

    async def _hear_within(self, after: float) -> tuple[Step, Message] | None:
        session = self._fresh()
        found = session.poll()
        if found is not None or after <= 0:
            return found
        try:
            async with asyncio.timeout(after):
                return await session.receive()
        except TimeoutError:
            return None


@dataclass(frozen=True)
class After:
    """Wait for a message for so many seconds, and send this if none has come."""

    seconds: float
    say: Any


class Handler:
    """Handler style: `at_<state>` says what to send (or None to wait), `on_<label>` hears of what has come."""

    table: Table

    def __init__(self, transport: Transport, *, tags: bool = True) -> None:
        self.session = Session(self.table, transport, tags=tags)

    async def run(self) -> None:
        """Follows the protocol to its end."""
        session = self.session
        while not session.ended:
            row = session.table.states[session.state]
            say = await getattr(self, f"at_{session.state}")() if any(step.send for step in row.steps) else None
            if isinstance(say, After):
                state = State(session)
                heard = await state._hear_within(say.seconds)
                say = say.say if heard is None else None
            else:
                heard = None
            if say is not None:
                await session.send(row.steps[say.index], say.payload())
                continue
            if heard is None:
                if all(step.send for step in row.steps):
                    raise ProtocolError(f"at_{session.state} gave nothing to send, and nothing can be received there")
                heard = await session.receive()
            step, message = heard
            await getattr(self, self.on[step.peer, step.label])(*message.payload)

    #: The method for each (sender, label).
    on: dict[tuple[str, str], str] = {}  # noqa: RUF012
