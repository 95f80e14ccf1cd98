"""Sessions between the ranks of a program: each role is a rank of a communicator of `armillary.comm`, on any of its backends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..endpoints.session import Message, Table
from .wire import LENGTH, MOST_BYTES, BadMessage, decode, encode

if TYPE_CHECKING:
    from armillary.comm import Communicator

#: The tag of session messages among those of the program.
TAG = 7126


class RankTransport:
    """A role's transport over a communicator; `roles[i]` is the role of rank i.

    poll_s: seconds between two looks for a message, which leaves time to other coroutines; None waits in the communicator instead,
    which is what virtual ranks need.
    """

    def __init__(self, comm: Communicator, roles: Sequence[str], table: Table, *, poll_s: float | None = 0.0005, tag: int = TAG) -> None:
        self.comm = comm
        self.ranks = {role: rank for rank, role in enumerate(roles)}
        self.table = table
        self.poll_s = poll_s
        self.tag = tag
        self._sending: list[tuple[object, bytes]] = []

    async def send(self, message: Message, /) -> None:
        """Starts sending and goes on; the bytes are kept until they are gone."""
        data = encode(message)
        request = self.comm.isend(np.frombuffer(data, np.uint8), self.ranks[message.receiver], self.tag)
        self._sending = [one for one in self._sending if not one[0].test()[0]] if len(self._sending) > 32 else self._sending  # type: ignore[attr-defined]
        self._sending.append((request, data))

    async def receive(self) -> Message:
        """The next message from any rank."""
        if self.poll_s is None:
            status = self.comm.probe(tag=self.tag)
        else:
            while (found := self.comm.iprobe(tag=self.tag)) is None:
                await asyncio.sleep(self.poll_s)
            status = found
        if status.nbytes > MOST_BYTES + LENGTH.size:
            raise BadMessage(f"found {status.nbytes:,} bytes; expected at most {MOST_BYTES:,}")
        room = np.empty(status.nbytes, np.uint8)
        self.comm.recv(room, status.source, self.tag)
        return decode(room.tobytes()[LENGTH.size :], self.table.types)

    def finish(self) -> None:
        """Waits until all that was sent is gone."""
        for request, _ in self._sending:
            request.wait()  # type: ignore[attr-defined]
        self._sending.clear()
