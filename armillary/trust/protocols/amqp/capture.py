"""Captured AMQP traffic: the bytes of the two directions, checked against the protocol files after the fact.

Nobody knows how the two directions were interleaved, so the check looks for one order of both in which the client's machine can say what
it said and hear what it heard. Where there is none, the frame after the longest possible beginning is the fault. Requests that the
protocol files do not name count as a question with its own answer; deliveries and what answers them run beside that, and must belong to a
consumer that the broker has confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from armillary.errors import InputError
from armillary.files import read_bytes

from ..checking.machine import Machine
from .client import client_machine
from .frames import HEARTBEAT, PROTOCOL_HEADER, Contents, Frame, Frames
from .methods import NUMBERS, AmqpError, Method

#: Bytes of a capture, of a frame and a message in it; methods of one direction; and (place in one stream, place in the other, state)
#: that are tried per channel.
MOST_BYTES, FRAME_MAX, MESSAGE_MAX, MOST_METHODS, MOST_TRIED = 1 << 28, 1 << 24, 1 << 27, 1_000_000, 2_000_000
#: What runs beside questions and answers, in either direction; `basic.cancel` and its answer do so only where the broker cancels.
_BESIDE = {
    "basic.deliver",
    "basic.return",
    "basic.ack",
    "basic.nack",
    "basic.reject",
    "basic.recover_async",
    "channel.flow",
    "channel.flow_ok",
}
_BESIDE_CONNECTION = {
    "connection.blocked", "connection.unblocked", "connection.secure", "connection.secure_ok", "connection.update_secret",
    "connection.update_secret_ok",
}  # fmt: skip
#: What the client says to close, and the answer that it still gets where that crossed the broker's own close; then labels of the
#: protocol file: what is not among them is a question (as `basic_qos` there), or the answer to one.
_CLOSES = {"channel_close": "channel_close_ok", "close": "close_ok"}
_CHANNEL = {
    "basic.publish": "basic_publish", "basic.get": "basic_get", "basic.get_ok": "basic_get_ok", "basic.get_empty": "basic_get_empty",
    "channel.open": "channel_open", "channel.open_ok": "channel_open_ok",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """Where a side broke the protocol: the offset of its frame in its own stream."""

    side: str
    offset: int
    said: str


@dataclass(frozen=True)
class Said:
    """One method of one side."""

    side: str
    offset: int
    channel: int
    name: str
    method: Method | None = None


def read_captures(client: Path, broker: Path) -> tuple[bytes, bytes]:
    """The bytes of two files, checked as far as that they begin as AMQP does."""
    sent, came = (read_bytes(path, limit=MOST_BYTES) for path in (client, broker))
    if not sent.startswith(PROTOCOL_HEADER):
        raise InputError(f"found {sent[:8]!r} at the beginning; expected the protocol header {PROTOCOL_HEADER!r}", where=str(client))
    if not came or came[0] != 1:
        raise InputError(f"found {came[:8]!r} at the beginning; expected a method frame of the broker", where=str(broker))
    return sent, came


def judge_captures(client: bytes, broker: bytes) -> list[Fault]:
    """What either side did wrong; nothing if there is an order of both streams that the protocol permits."""
    faults: list[Fault] = []
    first = Said("client", 0, 0, "protocol.header")
    streams = [[first], []]
    for stream, side, data in zip(streams, ("client", "broker"), (client[len(PROTOCOL_HEADER) :], broker)):
        start = len(PROTOCOL_HEADER) if side == "client" else 0
        fault = _methods(side, data, start, stream)
        if fault is not None:
            faults.append(fault)
    faults += _consumers(streams)
    channels: dict[int, list[list[Said]]] = {}
    for at, stream in enumerate(streams):
        for one in stream:
            channels.setdefault(one.channel, [[], []])[at].append(one)
    for number, mine in sorted(channels.items()):
        fault = _connection(mine) if number == 0 else _channel(mine)
        if fault is not None:
            faults.append(fault)
    return sorted(faults, key=lambda one: (one.side, one.offset))


def _methods(side: str, data: bytes, start: int, into: list[Said]) -> Fault | None:
    frames = Frames(FRAME_MAX)
    contents: dict[int, Contents] = {}
    begin = 0
    try:
        for frame in frames.feed(data):
            if frame.type != HEARTBEAT:
                _taken(frame, side, start + begin, contents, into)
            begin = frames.offset
    except AmqpError as problem:
        return Fault(side, start + begin, problem.text)
    if frames.rest:
        return Fault(side, start + begin, f"found {frames.rest} bytes of a frame that does not end; expected whole frames")
    return None


def _taken(frame: Frame, side: str, offset: int, contents: dict[int, Contents], into: list[Said]) -> None:
    found = contents.setdefault(frame.channel, Contents(MESSAGE_MAX)).take(frame)
    if found is not None:
        if len(into) >= MOST_METHODS:
            raise InputError(f"found more than {MOST_METHODS:,} methods of the {side}; expected a shorter capture")
        into.append(Said(side, offset, frame.channel, found[0].name, found[0]))


def _consumers(streams: list[list[Said]]) -> list[Fault]:
    # Who asks for no answer has named the consumer itself.
    asked = (one for one in streams[0] if one.name == "basic.consume" and one.method is not None and one.method.nowait)
    confirmed = {(one.channel, one.method.consumer_tag) for one in asked if one.method is not None}
    for one in streams[1]:
        if one.name == "basic.consume_ok" and one.method is not None:
            confirmed.add((one.channel, one.method.consumer_tag))
        if one.name == "basic.deliver" and one.method is not None and (one.channel, one.method.consumer_tag) not in confirmed:
            text = f'found a delivery to consumer "{one.method.consumer_tag}"; expected one that consume-ok has confirmed'
            return [Fault("broker", one.offset, text)]
    return []


def _connection(streams: list[list[Said]]) -> Fault | None:
    names = {"connection.close": ("close", "broker_close"), "connection.close_ok": ("client_close_ok", "close_ok")}
    labelled = []
    for at, stream in enumerate(streams):
        kept = [one for one in stream if one.name not in _BESIDE_CONNECTION]
        labelled.append([(one, names.get(one.name, (one.name.partition(".")[2],) * 2)[at]) for one in kept])
    labelled[0] = [(one, "protocol_header" if one.name == "protocol.header" else label) for one, label in labelled[0]]
    return _ordered(labelled, client_machine("amqp_connection"))


def _channel(streams: list[list[Said]]) -> Fault | None:
    labelled: list[list[tuple[Said, str]]] = [[], []]
    for at, stream in enumerate(streams):
        for one in stream:
            if one.name in _BESIDE or one.name == ("basic.cancel" if at else "basic.cancel_ok"):
                continue
            label = _CHANNEL.get(one.name)
            if one.name == "channel.close":
                label = "broker_close" if at else "channel_close"
            elif one.name == "channel.close_ok":
                label = "channel_close_ok" if at else "client_close_ok"
            if label is None:
                # Any other request is a question with an answer of its own, which is what it is called here.
                if getattr(one.method, "arguments", {}).get("nowait"):
                    continue
                label = one.name if at or f"{one.name}_ok" not in NUMBERS else f"{one.name}_ok"
            labelled[at].append((one, label))
    return _ordered(labelled, client_machine("amqp_channel"))


def _ordered(labelled: list[list[tuple[Said, str]]], machine: Machine) -> Fault | None:
    """Looks for an order of both streams; `labelled` has what the client and what the broker said."""
    said, heard = labelled
    first = (0, 0, frozenset(_silent(machine, {0})), "")
    seen = {first}
    waiting = [first]
    best = (0, 0)
    while waiting:
        i, j, states, asked = waiting.pop()
        if i == len(said) and j == len(heard):
            return None
        best = max(best, (i, j), key=sum)
        following = []
        if i < len(said):
            following += [(i + 1, j, *to) for to in _after(machine, states, asked, True, said[i][1])]
        if j < len(heard):
            following += [(i, j + 1, *to) for to in _after(machine, states, asked, False, heard[j][1])]
        for one in following:
            if one not in seen:
                if len(seen) > MOST_TRIED:
                    raise InputError(f"found more than {MOST_TRIED:,} orders of a channel's methods; expected a shorter capture")
                seen.add(one)
                waiting.append(one)
    i, j = best
    wrong = heard[j][0] if j < len(heard) else said[i][0]
    other = f", or {said[i][0].name} of the client" if j < len(heard) and i < len(said) else ""
    where = f"channel {wrong.channel}: " if wrong.channel else ""
    return Fault(wrong.side, wrong.offset, f"{where}found {wrong.name}{other}, not permitted after {i} and {j} methods")


def _after(machine: Machine, states: frozenset[int], asked: str, send: bool, label: str) -> list[tuple[frozenset[int], str]]:
    name, question = label, asked
    if send and label in _CLOSES:
        question = _CLOSES[label]
    elif not send and label == asked:
        question = ""
    if "." in label:
        if send:
            name, question = "basic_qos", label
        elif label == asked:
            name = "basic_qos_ok"
    to = {
        step.target for at in states for step in machine.states[at].steps
        if step.peer == "Broker" and step.send == send and step.label == name
    }  # fmt: skip
    stale = any(("Broker", name) in machine.states[at].discards for at in states)
    found = [(frozenset(_silent(machine, to)), question)] if to else []
    ended = any(not machine.states[at].steps for at in states)
    if not to and stale:
        found.append((states, asked))
    # A broker that has closed still answers a close that crossed its own, once.
    if not to and not send and label == asked == _CLOSES.get(label.removesuffix("_ok")) and ended:
        found.append((states, ""))
    # A closed channel's number may be opened again.
    if send and label == "channel_open" and ended:
        again = {s.target for at in _silent(machine, {0}) for s in machine.states[at].steps if s.label == label}
        found.append((frozenset(_silent(machine, again)), ""))
    return found


def _silent(machine: Machine, states: set[int]) -> set[int]:
    """The states that what happens between application and client can lead to."""
    found, waiting = set(states), list(states)
    while waiting:
        for step in machine.states[waiting.pop()].steps:
            if step.peer == "App" and step.target not in found:
                found.add(step.target)
                waiting.append(step.target)
    return found
