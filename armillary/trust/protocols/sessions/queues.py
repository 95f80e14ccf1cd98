"""Transports within one process: queues between roles, at once or with random delays that keep the order of each pair."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from ..endpoints.session import Message

#: Messages that may lie in a role's queue before its senders wait.
MOST_QUEUED = 1024


class Queues:
    """One queue per role; `of(role)` is that role's transport."""

    def __init__(self, roles: Iterable[str], most: int = MOST_QUEUED) -> None:
        self.queues: dict[str, asyncio.Queue[Message]] = {role: asyncio.Queue(most) for role in roles}

    def of(self, role: str) -> QueueTransport:
        """The transport of a role."""
        return QueueTransport(self.queues, role)


class QueueTransport:
    """Puts into others' queues and takes from its own."""

    def __init__(self, queues: dict[str, asyncio.Queue[Message]], role: str) -> None:
        self._queues = queues
        self._own = queues[role]

    async def send(self, message: Message, /) -> None:
        """Hands a message over; waits where the receiver's queue is full."""
        await self._queues[message.receiver].put(message)

    async def receive(self) -> Message:
        """The next message for this role."""
        return await self._own.get()

    def take(self) -> Message | None:
        """A message that has arrived, if there is one."""
        return None if self._own.empty() else self._own.get_nowait()


class Delayed:
    """Queues whose messages take random seconds on their way; those of one ordered pair stay in order unless `reorder`."""

    def __init__(self, roles: Iterable[str], delay_s: Callable[[], float], *, reorder: bool = False) -> None:
        self.queues: dict[str, asyncio.Queue[Message]] = {role: asyncio.Queue() for role in roles}
        self.delay_s = delay_s
        self.reorder = reorder
        self._on_the_way: dict[tuple[str, str], deque[Message]] = {}

    def of(self, role: str) -> DelayedTransport:
        """The transport of a role."""
        return DelayedTransport(self, role)

    def post(self, message: Message) -> None:
        """Puts a message on its way."""
        loop = asyncio.get_running_loop()
        if self.reorder:
            loop.call_later(self.delay_s(), self.queues[message.receiver].put_nowait, message)
            return
        # Whichever timer of the pair ends first brings the message that was sent first.
        pair = self._on_the_way.setdefault((message.sender, message.receiver), deque())
        pair.append(message)
        loop.call_later(self.delay_s(), self._arrive, pair)

    def _arrive(self, pair: deque[Message]) -> None:
        message = pair.popleft()
        self.queues[message.receiver].put_nowait(message)


class DelayedTransport:
    """A role's side of `Delayed`."""

    def __init__(self, network: Delayed, role: str) -> None:
        self._network = network
        self._own = network.queues[role]

    async def send(self, message: Message, /) -> None:
        """Puts a message on its way and goes on."""
        self._network.post(message)

    async def receive(self) -> Message:
        """The next message that has arrived."""
        return await self._own.get()

    def take(self) -> Message | None:
        """A message that has arrived, if there is one."""
        return None if self._own.empty() else self._own.get_nowait()
