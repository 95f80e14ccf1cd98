"""AMQP 0-9-1: the codec against pika's, and the client against brokers that break the rules, freeze, or close at the same time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_broker import Wire, broker

from armillary.trust.protocols.amqp import client as amqp_client
from armillary.trust.protocols.amqp.broker import lacking
from armillary.trust.protocols.amqp.client import Channel, ChannelClosed, Connection, ConnectionClosed, ConnectionLost, connect
from armillary.trust.protocols.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, Contents, Frame, Frames, content_frames, method_frame
from armillary.trust.protocols.amqp.methods import METHODS, WITH_CONTENT, AmqpError, Method, _Reader, encode_table, method_of
from armillary.trust.protocols.amqp.scenarios import SCENARIOS, run_scenario


def test_methods_are_numbered_and_written_as_pika_does() -> None:
    spec = pytest.importorskip("pika.spec")
    values = {
        "bit": True,
        "octet": 7,
        "short": 300,
        "long": 70_000,
        "longlong": 1 << 40,
        "shortstr": "word",
        "longstr": b"bytes",
        "table": {},
    }
    names = {"text": "reply_text", "code": "reply_code", "vhost": "virtual_host"}
    theirs = {(one.INDEX >> 16, one.INDEX & 0xFFFF): one for one in spec.methods.values()}
    assert {number for number in theirs if number[0] not in (30, 120)} - {(10, 70), (10, 71)} <= METHODS.keys()
    compared = 0
    for number, (name, arguments) in METHODS.items():
        if number not in theirs or number == (90, 10):
            continue
        other = theirs[number](**({"new_secret": b"", "reason": ""} if number == (10, 70) else {}))
        ours = {argument: values[kind] for argument, kind in arguments if not argument.startswith("reserved")}
        for argument, value in ours.items():
            attribute = names.get(argument, argument)
            assert hasattr(other, attribute), (name, argument)
            setattr(other, attribute, value)
        data = Method(name, ours).encode()
        assert data == struct.pack(">HH", *number) + b"".join(other.encode()), name
        assert {key: value for key, value in method_of(data).arguments.items() if key in ours} == ours
        compared += 1
    assert compared > 45


fields = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8) | st.binary(max_size=8)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(table=st.dictionaries(st.text(max_size=5), fields, max_size=4))
def test_a_table_survives_the_wire(table: dict[str, Any]) -> None:
    assert _Reader(encode_table(table)).value("table") == table


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), body=st.binary(max_size=300))
def test_frames_are_the_same_however_the_bytes_arrive(cuts: list[int], body: bytes) -> None:
    data = method_frame(3, Method("basic.publish", {"routing_key": "k"})) + content_frames(3, body, 64) + Frame(HEARTBEAT, 0, b"").encode()
    frames, found, at = Frames(4096), [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += frames.feed(data[at:cut])
        at = max(at, cut)
    assert b"".join(one.encode() for one in found) == data
    assert (frames.rest, frames.offset) == (0, len(data))
    contents = Contents(1000)
    whole = [one for one in (contents.take(frame) for frame in found[:-1]) if one is not None]
    assert [(method.name, content) for method, content in whole] == [("basic.publish", body)]


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (Frame(METHOD, 1, b"x").encode()[:-1] + b"\0", 501, "0x00 at the end of a frame"),
        (Frame(5, 1, b"x").encode(), 501, "frame of type 5"),
        (struct.pack(">BHI", METHOD, 1, 5000), 501, "5,008 bytes; expected at most 4,096"),
    ],
)
def test_a_bad_frame_is_refused_with_its_code(data: bytes, code: int, said: str) -> None:
    with pytest.raises(AmqpError) as refused:
        list(Frames(4096).feed(data))
    assert refused.value.code == code
    assert said in refused.value.text


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 502), (b"\0\x0a", 502), (struct.pack(">HH", 10, 99), 503), (struct.pack(">HH", 99, 10), 503),
        (struct.pack(">HHBBI", 10, 10, 0, 9, 1000), 502),
        (struct.pack(">HHBB", 10, 10, 0, 9) + encode_table({"a": 1})[:-1] + b"\0\0", 502),
        (struct.pack(">HHBB", 10, 10, 0, 9) + struct.pack(">I", 3) + b"\x01a?", 502),
    ],
)  # fmt: skip
def test_a_bad_method_is_refused_with_its_code(payload: bytes, code: int) -> None:
    with pytest.raises(AmqpError) as refused:
        method_of(payload)
    assert refused.value.code == code


def test_tables_inside_each_other_have_an_end() -> None:
    data = b""
    for _ in range(40):
        data = b"\x01a" + b"F" + struct.pack(">I", len(data)) + data
    with pytest.raises(AmqpError, match="tables inside each other"):
        _Reader(struct.pack(">I", len(data)) + data).value("table")
    data = b""
    for _ in range(40):
        data = b"A" + struct.pack(">I", len(data)) + data
    with pytest.raises(AmqpError):
        _Reader(struct.pack(">I", len(data) + 2) + b"\x01a" + data).value("table")


def test_content_follows_its_method_and_no_other() -> None:
    publish = Frame(METHOD, 1, Method("basic.publish").encode())
    head = Frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 4, 0))
    for frames, said in (
        ([head], "content without a method"),
        ([publish, publish], "method within the content"),
        ([publish, Frame(BODY, 1, b"abcd")], "does not announce"),
        ([publish, head, Frame(BODY, 1, b"abcde")], "does not announce"),
        ([publish, head, head], "a header that does not fit"),
        ([publish, Frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 1 << 40, 0))], "expected at most 100"),
    ):
        contents = Contents(100)
        with pytest.raises(AmqpError, match=said):
            for frame in frames:
                contents.take(frame)


def run(script: Callable[[Wire], Any], use: Callable[[Connection, Channel], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(20), broker(script, **options) as port:
            connection = await connect(port=port, heartbeat_s=options.get("heartbeat", 0))
            try:
                return await use(connection, await connection.channel())
            finally:
                await connection.close()

    return asyncio.run(main())


def breaking(data: bytes) -> tuple[int, int]:
    """The code that the client closes with, and the one that its user hears, after these bytes."""
    told: list[int] = []

    async def script(wire: Wire) -> None:
        await wire.expect("basic.get")
        wire.writer.write(data)
        told.append((await wire.expect("connection.close")).code)

    async def use(connection: Connection, channel: Channel) -> int:
        with pytest.raises(ConnectionClosed) as closed:
            await channel.get("q")
        while not told:
            await asyncio.sleep(0.001)
        with pytest.raises(ConnectionClosed):
            await channel.publish("", "q", b"")
        return closed.value.code

    heard = run(script, use)
    return told[0], heard


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (Frame(METHOD, 1, b"").encode()[:-1] + b"\0", 501),
        (struct.pack(">BHI", METHOD, 1, 131_072), 501),
        (Frame(METHOD, 1, struct.pack(">HH", 60, 99)).encode(), 503),
        (method_frame(1, Method("queue.declare_ok", {"queue": "q"})), 505),
        (method_frame(1, Method("basic.return")) + content_frames(1, b"", 4096), 540),
        (method_frame(7, Method("basic.get_empty")), 505),
        (content_frames(1, b"", 4096), 505),
        (method_frame(0, Method("connection.tune")), 503),
        (method_frame(1, Method("basic.deliver", {"consumer_tag": "c"})) + content_frames(1, b"x", 4096), 505),
    ],
    ids=[
        "frame end",
        "too large",
        "unknown method",
        "wrong answer",
        "unused method",
        "channel",
        "content alone",
        "tune",
        "unasked delivery",
    ],
)
def test_a_broker_that_breaks_the_rules_is_told_so_with_the_code_for_it(data: bytes, code: int) -> None:
    assert breaking(data) == (code, code)


def test_a_brokers_close_interrupts_what_was_asked_and_is_answered_and_the_number_is_used_again() -> None:
    async def script(wire: Wire) -> None:
        await wire.expect("basic.publish")
        await wire.frame()
        await wire.frame()
        await wire.expect("queue.declare")
        wire.say(1, "channel.close", code=404, text="no exchange")
        await wire.expect("channel.close_ok")
        channel, again = await wire.method()
        assert again.name == "channel.open"
        wire.say(channel, "channel.open_ok")
        await wire.expect("basic.get")
        wire.say(channel, "basic.get_empty")
        await wire.expect("connection.close")
        wire.say(0, "connection.close_ok")

    async def use(connection: Connection, channel: Channel) -> Any:
        await channel.publish("gone", "k", b"body")
        with pytest.raises(ChannelClosed, match="404 no exchange"):
            await channel.queue_declare("q")
        with pytest.raises(ChannelClosed):
            await channel.publish("gone", "k", b"body")
        return await (await connection.channel()).get("q")

    assert run(script, use) is None


def test_a_close_that_crosses_the_brokers_own_is_answered_and_ends_in_agreement() -> None:
    async def script(wire: Wire) -> None:
        await wire.expect("channel.close")
        wire.say(1, "channel.close", code=406, text="crossing")
        wire.say(1, "channel.close_ok")
        await wire.expect("channel.close_ok")
        await wire.expect("connection.close")
        wire.say(0, "connection.close", code=320, text="stopping")
        wire.say(0, "connection.close_ok")
        await wire.expect("connection.close_ok")

    async def use(connection: Connection, channel: Channel) -> Any:
        await channel.close()
        return channel.closed

    assert run(script, use).code == 406


def test_an_answer_to_a_close_that_nobody_sent_is_refused() -> None:
    async def script(wire: Wire) -> None:
        wire.say(1, "channel.close", code=406, text="closing")
        wire.say(1, "channel.close_ok")
        await wire.expect("channel.close_ok")
        assert (await wire.expect("connection.close")).code == 505

    async def use(connection: Connection, channel: Channel) -> Any:
        while connection.closed is None:
            await asyncio.sleep(0.001)
        return connection.closed.code

    assert run(script, use) == 505


def test_a_broker_that_freezes_is_noticed_by_who_waits_and_by_who_writes() -> None:
    async def script(wire: Wire) -> None:
        await asyncio.sleep(30)

    async def use(connection: Connection, channel: Channel) -> list[str]:
        async def flood() -> None:
            while True:
                await channel.publish("", "q", bytes(100_000))

        async def wait() -> None:
            while connection.closed is None:
                await asyncio.sleep(0.01)
            raise connection.closed

        found = await asyncio.gather(flood(), wait(), return_exceptions=True)
        return [str(one) for one in found if isinstance(one, ConnectionLost)]

    async def main() -> list[str]:
        async with asyncio.timeout(10), broker(script, heartbeat=1) as port:
            connection = await connect(port=port, heartbeat_s=1)
            connection.heartbeat_s = 0.1  # type: ignore[assignment]  # From the next frame on: AMQP itself knows whole seconds only.
            try:
                return await use(connection, await connection.channel())
            finally:
                await connection.close()
                for task in asyncio.all_tasks():
                    if task is not asyncio.current_task():
                        task.cancel()

    said = asyncio.run(main())
    assert len(said) == 2
    assert "said nothing for 0.2 s" in said[1]


def test_a_handshake_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_client, "HANDSHAKE_S", 0.2)

    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            with pytest.raises(ConnectionLost, match=r"did not finish the handshake within 0\.2 s"):
                await connect(port=server.sockets[0].getsockname()[1])

    asyncio.run(main())


def test_all_content_is_known() -> None:
    assert {name for _, (name, _) in METHODS.items()} >= WITH_CONTENT


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
@pytest.mark.parametrize(
    ("name", "times"),
    [("round_trip", 20), ("missing_exchange", 50), ("both_close", 200), ("refused_login", 3), ("killed_broker", 2), ("frozen_broker", 2)],
)
def test_the_client_passes_all_scenarios_with_rabbitmq(name: str, times: int) -> None:
    assert name in SCENARIOS
    assert run_scenario(name, times) == (times, [])
