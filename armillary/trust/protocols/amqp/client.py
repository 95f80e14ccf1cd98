"""An AMQP 0-9-1 client whose every step a monitor of the protocol files permits or refuses.

`amqp_connection.mst` and `amqp_channel.mst` say what role Client does; each method that is sent or has come is an event of its machine
before anything else happens. So the client cannot deviate, and where the broker does, the connection is closed with the code that AMQP
has for it. A broker's close interrupts whatever the client was about, as the mixed choice says; the client answers close-ok at once, and
whoever waits gets `ChannelClosed`.

Known deviation: a broker that has closed a channel still answers a client's close that crossed its own. The client takes that answer
where it has sent a close and been interrupted, and nowhere else.

    async with await connect(port=5672) as connection:
        channel = await connection.channel()
        await channel.queue_declare("jobs")
        await channel.publish("", "jobs", b"hello")
        print(await channel.get("jobs"))
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ..checking.machine import Machine
from ..checking.projection import project
from ..endpoints.monitor import Monitor
from ..language.protocol import load
from .frames import HEARTBEAT, METHOD, PROTOCOL_HEADER, Contents, Frame, Frames, content_frames, method_frame
from .methods import COMMAND_INVALID, NOT_IMPLEMENTED, UNEXPECTED_FRAME, AmqpError, Method, method_of

FOLDER = Path(__file__).parent
#: Bytes of the largest frame and message, channels of a connection, and seconds for the handshake and for an answer.
FRAME_MAX, MESSAGE_MAX, CHANNEL_MAX, HANDSHAKE_S, ANSWER_S = 131_072, 64 << 20, 255, 10.0, 30.0
#: Deliveries that wait to be taken.
MOST_DELIVERIES = 1024
_CAPABILITIES = ("connection.blocked", "consumer_cancel_notify", "basic.nack", "publisher_confirms", "authentication_failure_close")


class Closed(Exception):
    """A channel or connection is no more: the code and text of whoever closed it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code, self.text = code, text


class ChannelClosed(Closed):
    """The channel; the connection goes on, and another channel can be opened."""


class ConnectionClosed(Closed):
    """The whole connection."""


class ConnectionLost(ConnectionClosed):
    """The broker went away, or said nothing for two heartbeats."""


@functools.cache
def client_machine(name: str) -> Machine:
    """What role Client does in `amqp_channel.mst` or `amqp_connection.mst`."""
    return project(load(FOLDER / f"{name}.mst"), "Client")


class _Watched:
    """Feeds a monitor; what it does not permit raises AmqpError."""

    def __init__(self, name: str) -> None:
        self.monitor = Monitor(client_machine(name))

    def event(self, direction: Any, peer: str, label: str) -> None:
        said = self.monitor.feed(direction, peer, label)
        if not said:
            raise AmqpError(UNEXPECTED_FRAME, str(said))

    def permits(self, direction: str, peer: str, label: str) -> bool:
        steps = self.monitor.table.states[self.monitor.state].steps
        return any(("send" if step.send else "receive", step.peer, step.label) == (direction, peer, label) for step in steps)


class Channel:
    """One channel. Its methods raise `ChannelClosed` once the broker or the client has closed it."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        #: Why the channel is closed.
        self.closed: Closed | None = None
        self._watched = _Watched("amqp_channel")
        self._contents = Contents(MESSAGE_MAX)
        self._answer: asyncio.Future[tuple[Method, bytes]] | None = None
        self._deliveries: asyncio.Queue[tuple[Method, bytes] | None] = asyncio.Queue(MOST_DELIVERIES)
        self._closing = False
        self._lock = asyncio.Lock()

    # What the application asks

    async def publish(self, exchange: str, routing_key: str, body: bytes, *, persistent: bool = False) -> None:
        """Publishes a message and does not wait: whether the broker took it is known with the next answer."""
        self._batch()
        self._say("basic_publish")
        data = method_frame(self.number, Method("basic.publish", {"exchange": exchange, "routing_key": routing_key}))
        await self.connection.write(data + content_frames(self.number, body, self.connection.frame_max, persistent=persistent))

    async def queue_declare(self, queue: str = "", *, durable: bool = False, exclusive: bool = False, auto_delete: bool = False) -> str:
        """Declares a queue and returns its name, which the broker makes if it is empty."""
        what = {"queue": queue, "durable": durable, "exclusive": exclusive, "auto_delete": auto_delete}
        return str((await self._ask("queue.declare", what))[0].queue)

    async def exchange_declare(self, exchange: str, kind: str = "direct", *, auto_delete: bool = False) -> None:
        """Declares an exchange."""
        await self._ask("exchange.declare", {"exchange": exchange, "type": kind, "auto_delete": auto_delete})

    async def queue_bind(self, queue: str, exchange: str, routing_key: str = "") -> None:
        """Binds a queue to an exchange."""
        await self._ask("queue.bind", {"queue": queue, "exchange": exchange, "routing_key": routing_key})

    async def qos(self, count: int) -> None:
        """At most `count` deliveries without an acknowledgement."""
        await self._ask("basic.qos", {"prefetch_count": count})

    async def get(self, queue: str, *, no_ack: bool = True) -> bytes | None:
        """Takes one message off a queue, or None if it is empty."""
        method, body = await self._ask("basic.get", {"queue": queue, "no_ack": no_ack})
        if method.name == "basic.get_empty":
            return None
        if not no_ack:
            await self.ack(method.delivery_tag)
        return body

    async def ack(self, delivery_tag: int) -> None:
        """Acknowledges a message."""
        self._batch()
        self._say("basic_ack")
        await self.connection.write(method_frame(self.number, Method("basic.ack", {"delivery_tag": delivery_tag})))

    async def consume(self, queue: str, most: int) -> AsyncIterator[bytes]:
        """Yields `most` messages, one delivery at a time, then cancels; the protocol ends the channel with that."""
        await self.qos(1)
        tag = (await self._ask("basic.consume", {"queue": queue}))[0].consumer_tag
        for _ in range(most):
            found = await self._deliveries.get()
            if found is None:
                raise self.closed or ChannelClosed(0, "the channel was closed")
            method, body = found
            self._say("basic_ack")
            await self.connection.write(method_frame(self.number, Method("basic.ack", {"delivery_tag": method.delivery_tag})))
            self._watched.event("send", "App", "delivered")
            yield body
        await self._answered("basic_cancel", Method("basic.cancel", {"consumer_tag": tag}))
        self._watched.event("send", "App", "cancelled")
        await self._answered("close", Method("channel.close", {"code": 200, "text": "done"}))

    async def close(self) -> None:
        """Closes the channel; returns at once if it is closed."""
        if self.closed is not None:
            return
        async with self._lock:
            if self.closed is not None:
                return
            self._batch()
            self._closing = True
            with contextlib.suppress(ChannelClosed):
                await self._answered("channel_close", Method("channel.close", {"code": 200, "text": "done"}))

    # How that becomes protocol

    async def open(self) -> None:
        """Opens the channel; `Connection.channel` does it."""
        self._watched.event("receive", "App", "start")
        await self._answered("channel_open", Method("channel.open"))
        self._watched.event("send", "App", "ready")

    def _check(self) -> None:
        if self.closed is not None:
            raise self.closed

    def _batch(self) -> None:
        """Begins a batch where the protocol waits for one."""
        self._check()
        if self._watched.permits("receive", "App", "batch"):
            self._watched.event("receive", "App", "batch")

    def _say(self, label: str) -> None:
        self._check()
        self._watched.event("send", "Broker", label)

    async def _ask(self, name: str, arguments: dict[str, Any]) -> tuple[Method, bytes]:
        async with self._lock:
            self._batch()
            found = await self._answered(name.replace(".", "_"), Method(name, arguments))
            if self._watched.permits("send", "App", "answered"):
                self._watched.event("send", "App", "answered")
            return found

    async def _answered(self, label: str, method: Method) -> tuple[Method, bytes]:
        self._say(label)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self.connection.write(method_frame(self.number, method))
            async with asyncio.timeout(ANSWER_S):
                return await self._answer
        except TimeoutError:
            raise ConnectionLost(0, f"the broker did not answer {method.name} within {ANSWER_S:g} s") from None
        finally:
            if not self._answer.done():
                self._answer.cancel()
            elif not self._answer.cancelled():
                self._answer.exception()  # Where writing failed first, nobody else asks for it.
            self._answer = None

    # What comes

    def take(self, frame: Frame) -> bytes | None:
        """A frame of this channel; returns what has to be answered at once."""
        found = self._contents.take(frame)
        if found is None:
            return None
        method, body = found
        if self.closed is not None:
            # The deviation: the answer to a close that the broker's own close interrupted.
            if method.name == "channel.close_ok" and self._closing:
                self._closing = False
                return None
            if method.name == "channel.close":
                return method_frame(self.number, Method("channel.close_ok"))
            raise AmqpError(UNEXPECTED_FRAME, f"found {method.name} on a closed channel")
        if method.name == "channel.close":
            return self._closed_by_broker(method)
        if method.name == "basic.deliver":
            self._delivered(method, body)
            return None
        label = method.name.replace(".", "_")
        if label in ("channel_close_ok",) and self._watched.permits("receive", "Broker", "close_ok"):
            label = "close_ok"
        if not any(label == one for _, one in self._watched.monitor.table.types):
            raise AmqpError(NOT_IMPLEMENTED, f"found {method.name}, which this client does not use; expected what it asked for")
        self._watched.event("receive", "Broker", label)
        if label in ("channel_close_ok", "close_ok"):
            self._watched.event("send", "App", "closed")
            self._end(ChannelClosed(200, "the client closed the channel"), wake=False)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((method, body))
        return None

    def _delivered(self, method: Method, body: bytes) -> None:
        self._watched.event("receive", "Broker", "basic_deliver")
        # What crossed the cancel was thrown away by the monitor's discard, and is nobody's.
        if self._watched.permits("send", "Broker", "basic_ack"):
            try:
                self._deliveries.put_nowait((method, body))
            except asyncio.QueueFull:
                raise AmqpError(UNEXPECTED_FRAME, f"found more than {MOST_DELIVERIES} deliveries that nobody takes") from None

    def _closed_by_broker(self, method: Method) -> bytes:
        if self._watched.permits("receive", "Broker", "broker_close"):
            self._watched.event("receive", "Broker", "broker_close")
            self._watched.event("send", "Broker", "client_close_ok")
            self._watched.event("send", "App", "lost")
        self._end(ChannelClosed(method.code, method.text))
        return method_frame(self.number, Method("channel.close_ok"))

    def _end(self, why: Closed, *, wake: bool = True) -> None:
        self.closed = why
        if wake and self._answer is not None and not self._answer.done():
            self._answer.set_exception(why)
        with contextlib.suppress(asyncio.QueueFull):
            self._deliveries.put_nowait(None)

    def lose(self, why: Closed) -> None:
        """The connection is no more."""
        if self.closed is None:
            self._end(why)


class Connection:
    """A connection and its channels; made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._watched = _Watched("amqp_connection")
        self._frames = Frames(FRAME_MAX)
        self.frame_max, self.channel_max, self.heartbeat_s = FRAME_MAX, CHANNEL_MAX, 0
        #: Why the connection is closed; whether the broker has asked publishers to wait.
        self.closed: Closed | None = None
        self.blocked = ""
        self.channels: dict[int, Channel] = {}
        self._next = 0
        self._events: asyncio.Queue[Method] = asyncio.Queue(64)
        self._closing: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def channel(self) -> Channel:
        """Opens a channel."""
        self._check()
        taken = {number for number, one in self.channels.items() if one.closed is None}
        for _ in range(self.channel_max):
            self._next = self._next % self.channel_max + 1
            if self._next not in taken:
                break
        else:
            raise ChannelClosed(0, f"found {len(taken)} open channels; expected fewer than {self.channel_max}")
        channel = self.channels[self._next] = Channel(self, self._next)
        await channel.open()
        return channel

    async def close(self) -> None:
        """Closes the connection and waits for the broker's answer."""
        if self.closed is None:
            with contextlib.suppress(AmqpError, ConnectionClosed, OSError, TimeoutError):
                self._watched.event("receive", "App", "next")
                self._watched.event("send", "Broker", "close")
                self._closing = asyncio.get_running_loop().create_future()
                await self.write(method_frame(0, Method("connection.close", {"code": 200, "text": "bye"})))
                async with asyncio.timeout(HANDSHAKE_S):
                    await self._closing
        self._end(ConnectionClosed(200, "the client closed the connection"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(Exception):
            await self._writer.wait_closed()

    async def write(self, data: bytes) -> None:
        """Sends bytes; waits while the broker does not take them."""
        self._check()
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as problem:
            self._end(ConnectionLost(0, f"the broker went away ({problem.strerror or problem})"))
            self._check()

    def _check(self) -> None:
        if self.closed is not None:
            raise self.closed

    def _end(self, why: Closed) -> None:
        if self.closed is None:
            self.closed = why
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        if isinstance(self.closed, ConnectionLost):
            # Nobody takes what is still to be sent, and who waits for room would wait for ever.
            self._writer.transport.abort()
        for channel in self.channels.values():
            channel.lose(self.closed)

    # The handshake

    async def shake_hands(self, user: str, password: str, vhost: str, heartbeat_s: int) -> None:
        """Everything up to open-ok."""
        self._watched.event("receive", "App", "connect")
        self._watched.event("send", "Broker", "protocol_header")
        await self.write(PROTOCOL_HEADER)
        await self._method("start")
        response = b"\0" + user.encode() + b"\0" + password.encode()
        properties = {"product": "Armillary", "capabilities": dict.fromkeys(_CAPABILITIES, True)}
        what = {"client_properties": properties, "mechanism": "PLAIN", "response": response, "locale": "en_US"}
        await self._reply("start_ok", Method("connection.start_ok", what))
        tune = await self._method("tune")
        self.channel_max = min(tune.channel_max or CHANNEL_MAX, CHANNEL_MAX)
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self.heartbeat_s = min(tune.heartbeat, heartbeat_s) if tune.heartbeat and heartbeat_s else heartbeat_s or tune.heartbeat
        agreed = {"channel_max": self.channel_max, "frame_max": self.frame_max, "heartbeat": self.heartbeat_s}
        await self._reply("tune_ok", Method("connection.tune_ok", agreed))
        self._frames.most = self.frame_max
        await self._reply("open", Method("connection.open", {"vhost": vhost}))
        await self._method("open_ok")
        self._watched.event("send", "App", "connected")
        self._tasks = [asyncio.create_task(self._read_on())]
        if self.heartbeat_s:
            self._tasks.append(asyncio.create_task(self._beat()))

    async def _reply(self, label: str, method: Method) -> None:
        self._watched.event("send", "Broker", label)
        await self.write(method_frame(0, method))

    async def _method(self, label: str) -> Method:
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionLost(0, "the broker closed the connection during the handshake")
            for frame in self._frames.feed(data):
                if frame.type == HEARTBEAT:
                    continue
                if frame.type != METHOD or frame.channel != 0:
                    raise AmqpError(UNEXPECTED_FRAME, "found a frame of a channel during the handshake")
                method = method_of(frame.payload)
                if method.name == "connection.close":
                    self._writer.write(method_frame(0, Method("connection.close_ok")))
                    raise ConnectionClosed(method.code, method.text)
                self._watched.event("receive", "Broker", method.name.partition(".")[2])
                if method.name != f"connection.{label}":
                    raise AmqpError(UNEXPECTED_FRAME, f"found {method.name}; expected connection.{label}")
                return method

    # What comes later

    async def _read_on(self) -> None:
        try:
            while self.closed is None:
                async with asyncio.timeout(2 * self.heartbeat_s or None):
                    data = await self._reader.read(1 << 16)
                if not data:
                    self._end(ConnectionLost(0, "the broker closed the connection without a word"))
                    return
                for frame in self._frames.feed(data):
                    self._take(frame)
        except TimeoutError:
            self._end(ConnectionLost(0, f"the broker said nothing for {2 * self.heartbeat_s} s"))
        except OSError as problem:
            self._end(ConnectionLost(0, f"the broker went away ({problem.strerror or problem})"))
        except AmqpError as problem:
            # The broker breaks the rules: it is told so, and everybody who waits hears the same.
            with contextlib.suppress(OSError):
                self._writer.write(method_frame(0, Method("connection.close", {"code": problem.code, "text": problem.text[:200]})))
                await self._writer.drain()
            self._end(ConnectionClosed(problem.code, problem.text))

    def _take(self, frame: Frame) -> None:
        if frame.type == HEARTBEAT:
            return
        if frame.channel:
            if frame.channel not in self.channels:
                raise AmqpError(UNEXPECTED_FRAME, f"found a frame of channel {frame.channel}, which is not open")
            reply = self.channels[frame.channel].take(frame)
            if reply is not None:
                self._writer.write(reply)
            return
        if frame.type != METHOD:
            raise AmqpError(UNEXPECTED_FRAME, "found content on channel 0")
        method = method_of(frame.payload)
        if method.name == "connection.close":
            if self._watched.permits("receive", "App", "next"):
                # The broker acts first in a new round.
                self._watched.event("receive", "App", "next")
            self._watched.event("receive", "Broker", "broker_close")
            self._writer.write(method_frame(0, Method("connection.close_ok")))
            self._watched.event("send", "Broker", "client_close_ok")
            self._end(ConnectionClosed(method.code, method.text))
        elif method.name == "connection.close_ok":
            self._watched.event("receive", "Broker", "close_ok")
            self._end(ConnectionClosed(200, "the client closed the connection"))
        elif method.name in ("connection.blocked", "connection.unblocked"):
            self.blocked = method.reason if method.name == "connection.blocked" else ""
        else:
            raise AmqpError(NOT_IMPLEMENTED if method.name in ("connection.update_secret", "connection.secure") else COMMAND_INVALID,
                            f"found {method.name}, which this client does not use")  # fmt: skip

    async def _beat(self) -> None:
        while self.closed is None:
            await asyncio.sleep(self.heartbeat_s / 2)
            with contextlib.suppress(OSError, ConnectionClosed):
                await self.write(Frame(HEARTBEAT, 0, b"").encode())


async def connect(
    host: str = "127.0.0.1", port: int = 5672, *, user: str = "guest", password: str = "guest", vhost: str = "/", heartbeat_s: int = 10
) -> Connection:
    """Connects to a broker and logs in (PLAIN); raises `ConnectionClosed` with the broker's code, or `ConnectionLost`."""
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            reader, writer = await asyncio.open_connection(host, port)
            connection = Connection(reader, writer)
            try:
                await connection.shake_hands(user, password, vhost, heartbeat_s)
            except BaseException as problem:
                if isinstance(problem, AmqpError):
                    with contextlib.suppress(OSError):
                        writer.write(method_frame(0, Method("connection.close", {"code": problem.code, "text": problem.text[:200]})))
                        await writer.drain()
                writer.close()
                if isinstance(problem, AmqpError):
                    raise ConnectionClosed(problem.code, problem.text) from None
                raise
            return connection
    except TimeoutError:
        raise ConnectionLost(0, f"the broker did not finish the handshake within {HANDSHAKE_S:g} s") from None
    except OSError as problem:
        raise ConnectionLost(0, f"the broker cannot be reached ({problem.strerror or problem})") from None


__all__ = ["Channel", "ChannelClosed", "Closed", "Connection", "ConnectionClosed", "ConnectionLost", "connect"]
