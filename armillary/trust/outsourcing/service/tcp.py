"""A server of 2G2T on a TCP port of the loopback, with bounds on everything that a client may hold.

A query may have as many scalars as there are bases. The number of connections and of queries that are being received or computed are
bounded; who comes after is told that the server is busy. A connection that says nothing for `idle_s`, or whose query does not arrive
within `message_s`, is closed. A query that is wrong is refused with the reason and its connection closed; what its sender still sends is
read and thrown away for a moment, because a reset would take the reason with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from armillary.errors import InputError, one_line
from armillary.listening import listen
from armillary.trust.outsourcing.delegation.server import Server
from armillary.trust.outsourcing.group.element import ENCODED_BYTES

from .wire import ANSWERED, BUSY, MAGIC, MOST_REASON, QUERY, REFUSED, reply

LOOPBACK = "127.0.0.1"
#: What is thrown away of a query that was refused: bytes, and seconds.
DISCARDED_BYTES, DISCARDED_S = 1 << 20, 1.0


class Service:
    """Serves from entering a context to leaving it; `address` says where.

    connections: the most that are open. queries: the most that are received or computed at a time, which bounds memory to as many times 32
    bytes per base. idle_s and message_s: seconds as above.
    """

    def __init__(
        self,
        server: Server,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        connections: int = 16,
        queries: int = 4,
        idle_s: float = 30.0,
        message_s: float = 10.0,
    ) -> None:
        if not 0 <= port <= 65535:
            raise InputError(f"found {port}; expected 0 to 65535 (0: any that is free)", where="port")
        if connections < 1 or queries < 1 or idle_s <= 0 or message_s <= 0:
            raise InputError("found a bound that lets nobody in; expected at least one connection and query, and more than 0 seconds")
        self.server, self.host, self._port = server, host, port
        self.connections, self.queries, self.idle_s, self.message_s = connections, queries, idle_s, message_s
        #: Connections that are open, and queries that are received or computed.
        self.open = self.working = 0

    def wait(self) -> None:
        """Returns when the service has ended."""
        # A join that Ctrl-C interrupts would take the thread for ended ever after.
        self._ended.wait()

    def __enter__(self) -> Self:
        self._listener = listen(self.host, self._port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="msm")
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._ended.set()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(RuntimeError):  # It has ended by itself.
            self._loop.call_soon_threadsafe(self._end.set)
        self._ended.wait(30)
        self._pool.shutdown(cancel_futures=True)
        self._listener.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connected(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        serving = await asyncio.start_server(accepted, sock=self._listener, limit=1 << 16)
        await self._end.wait()
        serving.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            if self.open > self.connections:
                await self._say(writer, BUSY, f"{self.connections} connections are open")
                return
            with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                while await self._answered(reader, writer):
                    pass
                await self._discard(reader, writer)
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one query; false if the connection must be closed."""
        async with asyncio.timeout(self.idle_s):
            head = await reader.readexactly(QUERY.size)
        magic, count = QUERY.unpack(head)
        if magic != MAGIC:
            return await self._say(writer, REFUSED, "found no query where one should begin; the one before was longer than it said")
        if count != len(self.server.bases):
            return await self._say(writer, REFUSED, f"found {count:,} scalars; expected {len(self.server.bases):,}")
        if self.working >= self.queries:
            return await self._say(writer, BUSY, f"{self.queries} queries are being answered")
        self.working += 1
        try:
            async with asyncio.timeout(self.message_s):
                data = await reader.readexactly(count * ENCODED_BYTES)
            try:
                body = await asyncio.get_running_loop().run_in_executor(self._pool, self.server.answer, data)
            except InputError as wrong:
                return await self._say(writer, REFUSED, str(wrong))
        finally:
            self.working -= 1
        return await self._say(writer, ANSWERED, body)

    async def _discard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads what a refused client still sends, within bounds, so that it gets the reason."""
        writer.write_eof()
        left = DISCARDED_BYTES
        async with asyncio.timeout(DISCARDED_S):
            while left > 0 and (more := await reader.read(1 << 16)):
                left -= len(more)

    async def _say(self, writer: asyncio.StreamWriter, status: int, said: str | bytes) -> bool:
        body = one_line(said, MOST_REASON // 4).encode()[:MOST_REASON] if isinstance(said, str) else said
        writer.write(reply(status, body))
        async with asyncio.timeout(self.message_s):
            await writer.drain()
        return status == ANSWERED
