"""Captured AMQP traffic: a recording of pika and RabbitMQ is right, and every damage to it is found where it is."""

from __future__ import annotations

import asyncio
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_broker import Tap

from armillary.errors import InputError
from armillary.trust.protocols.amqp.broker import Broker, lacking
from armillary.trust.protocols.amqp.capture import judge_captures, read_captures
from armillary.trust.protocols.amqp.frames import METHOD, PROTOCOL_HEADER, Frame, Frames, method_frame
from armillary.trust.protocols.amqp.methods import Method, method_of
from armillary.trust.protocols.amqp.scenarios import SCENARIOS

FOLDER = Path(__file__).parent / "captures"
#: pika 1.4.4 and RabbitMQ 3.10.8: declare, bind, publish, get, nack, confirm, return, consume, cancel, purge, tx, a 404, and a lost consumer.
CLIENT, BROKER = (FOLDER / f"pika_{side}.bin" for side in ("client", "broker"))
Command = Callable[..., subprocess.CompletedProcess[str]]


def frames(path: Path) -> list[Frame]:
    data = path.read_bytes()
    return list(Frames(1 << 24).feed(data[8:] if data.startswith(PROTOCOL_HEADER) else data))


def name_of(frame: Frame) -> str:
    return method_of(frame.payload).name if frame.type == METHOD else ""


def joined(found: list[Frame], head: bytes = b"") -> bytes:
    return head + b"".join(one.encode() for one in found)


def test_a_recording_of_another_client_is_right() -> None:
    assert judge_captures(*read_captures(CLIENT, BROKER)) == []
    said = {name_of(one) for one in [*frames(CLIENT), *frames(BROKER)]}
    assert {"basic.return", "basic.nack", "basic.cancel_ok", "tx.commit_ok", "channel.close", "basic.cancel"} <= said


@pytest.mark.parametrize(
    "name",
    ["connection.tune", "connection.open_ok", "channel.open_ok", "exchange.declare_ok", "queue.declare_ok", "queue.bind_ok", "basic.get_ok",
     "confirm.select_ok", "basic.qos_ok", "basic.consume_ok", "basic.cancel_ok", "queue.purge_ok", "tx.select_ok", "connection.close_ok"],
)  # fmt: skip
def test_an_answer_that_comes_twice_is_found_at_its_place(name: str) -> None:
    found = frames(BROKER)
    at = next(i for i, one in enumerate(found) if name_of(one) == name)
    again = (
        joined([*found[: at + 1], found[at], *found[at + 1 :]])
        if name != "basic.get_ok"
        else joined([*found[: at + 3], *found[at : at + 3], *found[at + 3 :]])
    )
    faults = judge_captures(CLIENT.read_bytes(), again)
    assert len(faults) == 1
    offset = len(joined(found[: at + (3 if name == "basic.get_ok" else 1)]))
    assert (faults[0].side, faults[0].offset) == ("broker", offset) or name in ("queue.declare_ok", "basic.get_ok")
    assert "not permitted" in faults[0].said


@pytest.mark.parametrize("name", ["connection.start_ok", "connection.open", "channel.open", "queue.bind", "basic.get", "basic.consume"])
def test_a_question_that_was_not_asked_is_found(name: str) -> None:
    found = frames(CLIENT)
    at = next(i for i, one in enumerate(found) if name_of(one) == name)
    assert judge_captures(joined([*found[:at], *found[at + 1 :]], PROTOCOL_HEADER), BROKER.read_bytes())


def test_a_delivery_to_a_consumer_that_nobody_confirmed_is_found() -> None:
    found = frames(BROKER)
    stray = method_frame(1, Method("basic.deliver", {"consumer_tag": "stray"})) + joined([Frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0))])
    (fault,) = judge_captures(CLIENT.read_bytes(), joined(found) + stray)
    assert 'consumer "stray"' in fault.said


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1] + b"\0", "0x00 at the end of a frame"),
        (lambda data: data[:-3], "a frame that does not end"),
        (lambda data: data + struct.pack(">BHI", 1, 1, 1 << 31), "expected at most 16,777,216"),
        (lambda data: data + Frame(METHOD, 1, struct.pack(">HH", 60, 99)).encode(), "method 60.99"),
        (lambda data: data + Frame(3, 1, b"x").encode(), "content without a method"),
    ],
)
def test_bytes_that_are_no_frames_are_found(damage: Any, said: str) -> None:
    for side in (0, 1):
        both = [CLIENT.read_bytes(), BROKER.read_bytes()]
        both[side] = damage(both[side])
        assert any(said in one.said and one.side == ("client", "broker")[side] for one in judge_captures(*both))


def conversation(client: list[tuple[str, dict[str, Any]]], broker: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Judges what is said on a channel of a connection that was opened as it should."""
    opened = [one for one in frames(CLIENT) if one.channel == 0 and not name_of(one).endswith("close")]
    answered = [one for one in frames(BROKER) if one.channel == 0 and not name_of(one).endswith("close_ok")]
    sides = (joined(opened, PROTOCOL_HEADER), client), (joined(answered), broker)
    return [one.said for one in judge_captures(*(data + b"".join(method_frame(1, Method(*one)) for one in said) for data, said in sides))]


OPEN, OPENED, CLOSE, CLOSED = ("channel.open", {}), ("channel.open_ok", {}), ("channel.close", {"code": 200}), ("channel.close_ok", {})


def test_closes_that_cross_are_right_and_one_answer_too_many_is_not() -> None:
    assert conversation([OPEN, CLOSE, CLOSED], [OPENED, CLOSE, CLOSED]) == []
    assert conversation([OPEN, CLOSE, CLOSED, OPEN], [OPENED, CLOSE, CLOSED, OPENED]) == []
    assert len(conversation([OPEN, CLOSED], [OPENED, CLOSE, CLOSED])) == 1
    assert len(conversation([OPEN, CLOSE, CLOSED], [OPENED, CLOSE, CLOSED, CLOSED])) == 1
    assert len(conversation([OPEN, CLOSE], [OPENED, CLOSED, CLOSED])) == 1
    assert len(conversation([OPEN, ("queue.declare", {})], [OPENED, ("queue.bind_ok", {})])) == 1
    assert conversation([OPEN, ("queue.declare", {"nowait": True})], [OPENED]) == []


@pytest.mark.parametrize(
    ("client", "broker", "said"),
    [
        (b"GET / HTTP/1.1", b"\x01", "expected the protocol header"),
        (PROTOCOL_HEADER, b"AMQP", "expected a method frame"),
        (PROTOCOL_HEADER, b"", "expected a method frame"),
    ],
)
def test_files_that_are_no_captures_are_refused(tmp_path: Path, client: bytes, broker: bytes, said: str) -> None:
    (tmp_path / "c").write_bytes(client)
    (tmp_path / "b").write_bytes(broker)
    with pytest.raises(InputError, match=said):
        read_captures(tmp_path / "c", tmp_path / "b")


def test_two_captures_are_judged_by_the_command(armillary_here: Command, tmp_path: Path) -> None:
    found = frames(BROKER)
    at = next(i for i, one in enumerate(found) if name_of(one) == "queue.bind_ok")
    (tmp_path / "broker.bin").write_bytes(joined([*found[:at], found[at], *found[at:]]))
    wrong = armillary_here("compare", "trust/protocols", "--work", str(CLIENT), f"--broker={tmp_path / 'broker.bin'}", "--repeats", "1")
    assert wrong.returncode == 0
    assert "queue.bind_ok" in wrong.stdout.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_what_clients_say_to_rabbitmq_is_right() -> None:
    with Broker() as real:
        for name in ("round_trip", "missing_exchange", "both_close"):
            tap = Tap(real.port)
            assert asyncio.run(SCENARIOS[name](tap.port)) == ""
            assert judge_captures(*tap.ended()) == []
        amqp = pytest.importorskip("amqp")
        tap = Tap(real.port)
        with amqp.Connection(f"127.0.0.1:{tap.port}") as connection:
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).queue
            channel.basic_publish(amqp.Message("hello"), routing_key=queue)
            heard: list[Any] = []
            channel.basic_consume(queue, callback=heard.append, no_ack=True)
            while not heard:
                connection.drain_events(timeout=5)
            channel.queue_delete(queue)
            channel.close()
        assert judge_captures(*tap.ended()) == []
