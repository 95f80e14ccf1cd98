"""What the client must get through with a real broker; each scenario is tried many times and every try is judged alone."""

from __future__ import annotations

import asyncio
import atexit
import signal
from collections.abc import Awaitable, Callable

from armillary.wording import listed

from .broker import Broker
from .client import Channel, ChannelClosed, Connection, ConnectionClosed, ConnectionLost, connect

#: Seconds after which a try counts as hung.
PATIENCE_S = 20.0
_running: list[Broker] = []


def broker() -> Broker:
    """The broker of this process, started at its first use and ended with the process."""
    if not _running:
        started = Broker()
        started.__enter__()
        atexit.register(started.__exit__)
        _running.append(started)
    return _running[0]


async def round_trip(port: int) -> str:
    """Publish and get, through a queue, an exchange and a consumer."""
    async with await connect(port=port) as connection:
        channel = await connection.channel()
        queue = await channel.queue_declare(exclusive=True)
        await channel.publish("", queue, b"hello")
        large = bytes(range(256)) * 1024
        await channel.publish("", queue, large)
        if (await channel.get(queue), await channel.get(queue), await channel.get(queue)) != (b"hello", large, None):
            return "another message came than was sent"
        await channel.exchange_declare("armillary", "fanout", auto_delete=True)
        await channel.queue_bind(queue, "armillary")
        for i in range(3):
            await channel.publish("armillary", "", b"%d" % i)
        if [body async for body in channel.consume(queue, 2)] != [b"0", b"1"]:
            return "the consumer got other messages"
        return "" if channel.closed is not None else "the channel is still open"


async def missing_exchange(port: int) -> str:
    """Publishing on while the broker closes the channel: later messages are lost, the next channel works."""
    async with await connect(port=port) as connection:
        channel = await connection.channel()
        queue = await channel.queue_declare(exclusive=True)
        try:
            for _ in range(50):
                await channel.publish("no such exchange", "k", b"lost")
                await channel.publish("", queue, b"after")
            await channel.get(queue)
            return "the broker took messages for an exchange that is not there"
        except ChannelClosed as closed:
            if closed.code != 404:
                return f"found code {closed.code}; expected 404"
        again = await connection.channel()
        await again.publish("", queue, b"next")
        while (found := await again.get(queue)) is not None:
            if found == b"next":
                return ""
        return "the message after reopening did not arrive"


async def both_close(port: int) -> str:
    """The client closes the channel while the broker is about to."""
    async with await connect(port=port) as connection:
        channel = await connection.channel()
        await channel.publish("no such exchange", "k", b"lost")
        await channel.close()
        if channel.closed is None:
            return "the channel is still open"
        again = await connection.channel()
        await again.queue_declare(exclusive=True)
        return ""


async def refused_login(port: int) -> str:
    """A wrong password."""
    try:
        await connect(port=port, password="wrong")
    except ConnectionClosed as closed:
        return "" if closed.code == 403 else f"found code {closed.code}; expected 403"
    return "the broker let a wrong password in"


async def killed_broker(port: int) -> str:
    """The server dies while a message is awaited; the endpoint says so at once."""
    connection: Connection = await connect(port=port, heartbeat_s=1)
    try:
        channel = await connection.channel()
        queue = await channel.queue_declare(exclusive=True)
        asyncio.get_running_loop().call_later(0.05, broker().kill)
        async with asyncio.timeout(3.0):
            while True:
                await channel.get(queue)
    except (ConnectionLost, ConnectionClosed):
        return ""
    except TimeoutError:
        return "nobody said that the broker was gone"
    finally:
        await connection.close()


async def frozen_broker(port: int) -> str:
    """The server stands still with its connections open, while a message is awaited and another channel publishes without end."""
    connection: Connection = await connect(port=port, heartbeat_s=1)
    told: list[str] = []

    async def publish(channel: Channel) -> None:
        try:
            while True:
                await channel.publish("", "nobody", bytes(100_000))
        except (ConnectionLost, ConnectionClosed):
            told.append("publisher")

    try:
        asking, publishing = await connection.channel(), await connection.channel()
        queue = await asking.queue_declare(exclusive=True)
        broker().signal(signal.SIGSTOP)
        async with asyncio.timeout(6.0):
            flood = asyncio.create_task(publish(publishing))
            try:
                # A thread of the server may answer once more while the signal is on its way to it.
                while True:
                    await asking.get(queue)
            except (ConnectionLost, ConnectionClosed):
                told.append("reader")
            await flood
        return "" if sorted(told) == ["publisher", "reader"] else f"only {listed(told) or 'nobody'} was told that the broker is gone"
    except TimeoutError:
        return f"only {listed(told) or 'nobody'} was told that the broker is gone"
    finally:
        broker().signal(signal.SIGCONT)
        await connection.close()


SCENARIOS: dict[str, Callable[[int], Awaitable[str]]] = {
    "round_trip": round_trip, "missing_exchange": missing_exchange, "both_close": both_close, "refused_login": refused_login,
    "killed_broker": killed_broker, "frozen_broker": frozen_broker,
}  # fmt: skip


def run_scenario(name: str, times: int) -> tuple[int, list[str]]:
    """How many tries went well, and what went wrong in the others."""
    wrong = []
    for _ in range(times):
        said = asyncio.run(_once(name))
        if said:
            wrong.append(said)
        if name == "killed_broker":
            broker().start()
    return times - len(wrong), wrong[:20]


async def _once(name: str) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await SCENARIOS[name](broker().port)
    except TimeoutError:
        return f"hung for {PATIENCE_S:g} s"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
