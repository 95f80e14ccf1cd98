"""A broker that shakes hands as it should and then does what a test tells it, which a real one would not; and a tap on a real one's wire."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable

from armillary.trust.protocols.amqp.frames import METHOD, PROTOCOL_HEADER, Frame, Frames, method_frame
from armillary.trust.protocols.amqp.methods import Method, method_of

LOOPBACK = "127.0.0.1"
Script = Callable[["Wire"], Awaitable[None]]


class Wire:
    """One connection, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = Frames(1 << 20)
        self.waiting: list[Frame] = []

    async def frame(self) -> Frame:
        while not self.waiting:
            data = await self.reader.read(1 << 16)
            if not data:
                raise ConnectionError("the client has gone")
            self.waiting += self.frames.feed(data)
        return self.waiting.pop(0)

    async def method(self) -> tuple[int, Method]:
        while True:
            frame = await self.frame()
            if frame.type == METHOD:
                return frame.channel, method_of(frame.payload)

    def say(self, channel: int, name: str, **arguments: object) -> None:
        self.writer.write(method_frame(channel, Method(name, arguments)))

    async def expect(self, name: str) -> Method:
        _, found = await self.method()
        assert found.name == name
        return found


@contextlib.asynccontextmanager
async def broker(script: Script, *, heartbeat: int = 0, frame_max: int = 131_072):  # type: ignore[no-untyped-def]
    """Listens on a port of the loopback; `script` begins once the first channel is open."""
    faults: list[BaseException] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        try:
            assert await reader.readexactly(8) == PROTOCOL_HEADER
            wire.say(0, "connection.start", version_major=0, version_minor=9, mechanisms=b"PLAIN", locales=b"en_US")
            assert (await wire.expect("connection.start_ok")).response == b"\0guest\0guest"
            wire.say(0, "connection.tune", channel_max=10, frame_max=frame_max, heartbeat=heartbeat)
            await wire.expect("connection.tune_ok")
            await wire.expect("connection.open")
            wire.say(0, "connection.open_ok")
            await wire.expect("channel.open")
            wire.say(1, "channel.open_ok")
            await script(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except BaseException as problem:
            faults.append(problem)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        assert not faults, faults


class Tap:
    """Forwards one connection to a port, and keeps the bytes of both directions."""

    def __init__(self, to: int) -> None:
        self.client, self.broker = bytearray(), bytearray()
        self._to = to
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def _forward(self) -> None:
        with self._listener.accept()[0] as client, socket.create_connection((LOOPBACK, self._to)) as broker:
            back = threading.Thread(target=_pump, args=(broker, client, self.broker), daemon=True)
            back.start()
            _pump(client, broker, self.client)
            back.join(5)

    def ended(self) -> tuple[bytes, bytes]:
        """What was said, once both have gone."""
        self._thread.join(10)
        self._listener.close()
        return bytes(self.client), bytes(self.broker)


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            kept += data
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
