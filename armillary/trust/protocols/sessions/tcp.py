"""Sessions over TCP: each role listens, and each ordered pair of roles has a connection of its own, so its order is kept.

A server listens on the loopback unless told otherwise. A connection begins with the name of the role at its other end, within a few
seconds. The length of a message, the number of connections, the messages that wait and the seconds without a message are bounded; who
exceeds a bound is disconnected, and a full queue makes its senders wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from armillary.listening import listen

from ..endpoints.session import Message, ProtocolError, Table
from .wire import LENGTH, MOST_BYTES, BadMessage, decode, encode

LOOPBACK = "127.0.0.1"


class Disconnected(ProtocolError):
    """A peer went away, or could not be reached."""


class TcpTransport:
    """A role's transport over TCP: `address` is where it listens, `peers` where the others do.

    most_bytes: of one message. most_queued: messages that wait to be taken. idle_s: seconds after which a silent connection is closed,
    and after which whoever waits for a message is told that none comes. hello_s: seconds within which a connection must say whose it is.
    """

    def __init__(
        self,
        table: Table,
        peers: Mapping[str, tuple[str, int]] | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        most_bytes: int = MOST_BYTES,
        most_queued: int = 1024,
        idle_s: float = 60.0,
        hello_s: float = 5.0,
    ) -> None:
        self.table = table
        self.peers = dict(peers or {})
        self.most_bytes, self.idle_s, self.hello_s = most_bytes, idle_s, hello_s
        #: Roles that may connect: those that this one hears of.
        self.known = {sender for sender, _ in table.types}
        self._listener = listen(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._queue: asyncio.Queue[Message | Exception] = asyncio.Queue(most_queued)
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._connected: dict[str, asyncio.StreamWriter] = {}
        self._open: set[asyncio.StreamWriter] = set()
        #: Roles whose connection has ended; once these are all that are known, nothing can come any more.
        self._gone: set[str] = set()
        #: Connections that were turned away, by reason.
        self.refused: dict[str, int] = {}

    async def __aenter__(self) -> TcpTransport:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener, limit=max(self.most_bytes, 1 << 16))
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for writer in [*self._writers.values(), *self._open]:
            writer.close()
        for writer in [*self._writers.values(), *self._open]:
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def send(self, message: Message, /) -> None:
        """Sends over the connection to the receiver, which is made at the first message."""
        data = encode(message, self.most_bytes)
        try:
            writer = self._writers.get(message.receiver) or await self._connect(message.receiver)
            writer.write(data)
            await writer.drain()
        except OSError as problem:
            raise Disconnected(f"{message.receiver} cannot be reached ({problem.strerror or problem})") from None

    async def receive(self) -> Message:
        """The next message from anybody.

        Raises `Disconnected` when a connection broke in the middle of a message, when all who might send have gone, and when nothing
        has come for `idle_s` seconds.
        """
        found = self.take()
        if found is not None:
            return found
        try:
            async with asyncio.timeout(self.idle_s):
                came = await self._queue.get()
        except TimeoutError:
            raise Disconnected(f"{self.table.role} has heard nothing for {self.idle_s:g} s") from None
        if isinstance(came, Exception):
            raise came
        return came

    def take(self) -> Message | None:
        """A message that has arrived, if there is one."""
        if self._queue.empty():
            return None
        found = self._queue.get_nowait()
        if isinstance(found, Exception):
            raise found
        return found

    async def _connect(self, peer: str) -> asyncio.StreamWriter:
        if peer not in self.peers:
            raise Disconnected(f"{peer} cannot be reached (no address is known)")
        _, writer = await asyncio.open_connection(*self.peers[peer])
        name = self.table.role.encode()
        writer.write(LENGTH.pack(len(name)) + name)
        self._writers[peer] = writer
        return writer

    def _refuse(self, reason: str, writer: asyncio.StreamWriter) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        writer.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= 2 * len(self.known) + 2:
            self._refuse("too many connections", writer)
            return
        self._open.add(writer)
        sender = ""
        try:
            async with asyncio.timeout(self.hello_s):
                sender = (await self._frame(reader, 256)).decode("utf-8", "replace")
            if sender not in self.known or sender in self._connected:
                self._refuse("unknown or second sender", writer)
                sender = ""
                return
            self._connected[sender] = writer
            self._gone.discard(sender)
            await self._read(sender, reader)
            self._gone.add(sender)
            if self._gone == self.known:
                await self._queue.put(Disconnected(f"all who speak to {self.table.role} went away ({', '.join(sorted(self.known))})"))
        except TimeoutError:
            self._refuse("silent for too long", writer)
        except (BadMessage, asyncio.IncompleteReadError, OSError) as problem:
            self._refuse("bad message" if isinstance(problem, BadMessage) else "broken connection", writer)
            if sender:
                await self._queue.put(Disconnected(f"{sender}: {problem}" if isinstance(problem, BadMessage) else f"{sender} went away"))
        finally:
            self._open.discard(writer)
            if sender:
                self._connected.pop(sender, None)
            writer.close()

    async def _read(self, sender: str, reader: asyncio.StreamReader) -> None:
        while True:
            async with asyncio.timeout(self.idle_s):
                try:
                    head = await reader.readexactly(LENGTH.size)
                except asyncio.IncompleteReadError as ended:
                    if ended.partial:
                        raise
                    return
                data = await self._body(reader, head, self.most_bytes)
            message = decode(data, self.table.types)
            if message.sender != sender or message.receiver != self.table.role:
                raise BadMessage(f"found a message from {message.sender} to {message.receiver} on the connection of {sender}")
            await self._queue.put(message)

    async def _frame(self, reader: asyncio.StreamReader, most: int) -> bytes:
        return await self._body(reader, await reader.readexactly(LENGTH.size), most)

    async def _body(self, reader: asyncio.StreamReader, head: bytes, most: int) -> bytes:
        (size,) = LENGTH.unpack(head)
        if size > most:
            raise BadMessage(f"found {size:,} bytes; expected at most {most:,}")
        return await reader.readexactly(size)
