"""A monitor: says of each event of a role whether the protocol permits it, by one look-up in a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..checking.machine import Machine
from ..checking.projection import project
from ..language.protocol import Protocol
from .session import Instances, Message, Session, Step, Table, Transport, is_of
from .tables import table_of

Direction = Literal["send", "receive"]


@dataclass(frozen=True)
class Violation:
    """An event that the protocol does not permit: in which state, what it expected, what it got. It counts as False."""

    role: str
    state: int
    expected: tuple[str, ...]
    got: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"role {self.role}, state {self.state}: found {self.got}; expected {' or '.join(self.expected) or 'nothing more'}"


class Broken(Exception):
    """A monitored transport met a violation, which is `violation`."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class _Row(dict[tuple[str, str, str], tuple["_Row", Step | None]]):
    """What a state permits: (direction, peer, label) to the next row and the step; no step for what is thrown away."""

    state = 0


class Monitor:
    """Watches one role.

    `feed` takes one event and returns True or a `Violation`; after a violation the state is as before. `feed_message` also looks at
    payload, tags and the numbers that messages carry, so a transport that changes their order is noticed even between equal labels.
    """

    def __init__(self, protocol: Protocol | Machine | Table, role: str = "") -> None:
        if isinstance(protocol, Protocol):
            protocol = project(protocol, role)
        self.table = protocol if isinstance(protocol, Table) else table_of(protocol)
        self.role = self.table.role
        self._rows = [_Row() for _ in self.table.states]
        for number, (row, state) in enumerate(zip(self._rows, self.table.states)):
            row.state = number
            for peer, label in state.discards:
                row["receive", peer, label] = (row, None)
            for step in state.steps:
                row["send" if step.send else "receive", step.peer, step.label] = (self._rows[step.target], step)
        self.start()

    def start(self) -> None:
        """Begins a new session."""
        self._now = self._rows[0]
        self._instances = Instances(self.table.inner)
        self._numbers: dict[tuple[str, str], int] = {}
        self._arrived: dict[str, int] = {}

    @property
    def state(self) -> int:
        """The number of the present state."""
        return self._now.state

    @property
    def ended(self) -> bool:
        """Whether nothing more is permitted but what is thrown away."""
        return not self.table.states[self._now.state].steps

    def feed(self, direction: Direction, peer: str, label: str) -> bool | Violation:
        """One event, without payload and tags."""
        found = self._now.get((direction, peer, label))
        if found is None:
            return self._violation(f'{direction} "{label}" {"to" if direction == "send" else "from"} {peer}')
        self._now = found[0]
        return True

    def feed_message(self, direction: Direction, message: Message) -> bool | Violation:
        """One event with all that its message carries."""
        peer = message.receiver if direction == "send" else message.sender
        got = f'{direction} "{message.label}" {"to" if direction == "send" else "from"} {peer}'
        key = (direction, peer)
        due = self._numbers.get(key, 0)
        if message.number >= 0 and message.number != due:
            return self._violation(f"{got} as number {message.number} of its pair, of which number {due} is due: the order was changed")
        fault = self._followed(direction, peer, message, got)
        if fault is not None:
            return fault
        self._numbers[key] = due + 1
        return True

    def arrive(self, message: Message) -> bool | Violation:
        """A message has come and waits until the role takes it: its number must be the next of its pair, or it waits for ever unseen."""
        due = self._arrived.get(message.sender, 0)
        if message.number >= 0 and message.number != due:
            got = f'"{message.label}" from {message.sender} as number {message.number} of its pair, of which number {due} is due'
            return self._violation(f"{got}: the order was changed")
        self._arrived[message.sender] = due + 1
        return True

    def _followed(self, direction: str, peer: str, message: Message, got: str) -> Violation | None:
        if direction == "receive" and message.tags and self._instances.stale(message.tags):
            return None
        found = self._now.get((direction, peer, message.label))
        if found is None:
            return self._violation(got)
        row, step = found
        if step is not None:
            if len(step.types) != len(message.payload) or not all(map(is_of, step.types, message.payload)):
                return self._violation(f"{got} with a payload of other types ({', '.join(type(one).__name__ for one in message.payload)})")
            if message.tags and not self._fits(step, message, direction):
                return self._violation(f"{got} of another instance of a mixed choice ({message.tags})")
            if not (message.tags and direction == "send"):
                self._instances.take(step)
        self._now = row
        return None

    def _fits(self, step: Step, message: Message, direction: str) -> bool:
        if direction == "receive":
            return self._instances.fits(step, message.tags)
        # What is sent carries the instance that it enters.
        fitting = self._instances.fits(step, message.tags)
        if fitting:
            self._instances.take(step)
        return fitting

    def _violation(self, got: str) -> Violation:
        state = self.table.states[self._now.state]
        expected = tuple(f"{'send' if step.send else 'receive'} {step}" for step in state.steps)
        return Violation(self.role, self._now.state, expected, got)


class Monitored:
    """A transport whose messages a monitor sees, over whatever it runs: queues, TCP, ranks. It raises `Broken` at a violation.

    The order of what arrives is judged at once, and everything else when the role takes it, because a message may wait; so the session
    must be told of its monitor: `session = Monitored.session(table, transport)`.
    """

    def __init__(self, transport: Transport, monitor: Monitor, *, tags: bool = True) -> None:
        self.transport = transport
        self.monitor = monitor
        self.tags = tags

    async def send(self, message: Message, /) -> None:
        """Sends what the monitor permits."""
        self._judge("send", message)
        await self.transport.send(message)

    async def receive(self) -> Message:
        """The next message."""
        return self._arrived(await self.transport.receive())

    def take(self) -> Message | None:
        """A message that has arrived, if the transport can say so."""
        take = getattr(self.transport, "take", None)
        found: Message | None = take() if take is not None else None
        return found if found is None else self._arrived(found)

    def _arrived(self, message: Message) -> Message:
        said = self.monitor.arrive(message)
        if isinstance(said, Violation):
            raise Broken(said)
        return message

    def _judge(self, direction: Direction, message: Message) -> None:
        said = self.monitor.feed_message(direction, message if self.tags else replace(message, tags=()))
        if isinstance(said, Violation):
            raise Broken(said)

    def taken(self, message: Message) -> None:
        """The role takes a message, or throws it away."""
        self._judge("receive", message)

    @classmethod
    def session(cls, table: Table, transport: Transport, *, tags: bool = True, carry: bool | None = None) -> Session:
        """A session that is watched by a monitor of the same table."""
        return MonitoredSession(table, cls(transport, Monitor(table), tags=tags), tags=tags, carry=carry)


class MonitoredSession(Session):
    """A session that shows its monitor what it takes before it acts on it."""

    def _reaction(self, message: Message) -> Step | bool | None:
        found = super()._reaction(message)
        if found is not None and isinstance(self.transport, Monitored):
            self.transport.taken(message)
        return found
