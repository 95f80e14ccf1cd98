"""The methods of AMQP 0-9-1 that brokers and clients exchange, with their numbers and arguments, and the codec of their values.

A method's arguments stand as `name:type`; adjacent bits share octets. All that RabbitMQ may send is here, so that everything can be read;
the client uses a part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, UNEXPECTED_FRAME, NOT_IMPLEMENTED = 501, 502, 503, 505, 540
#: Levels of tables and arrays inside each other.
MOST_NESTING = 16

_SAID = """
10 connection
 10 start version_major:octet version_minor:octet server_properties:table mechanisms:longstr locales:longstr
 11 start_ok client_properties:table mechanism:shortstr response:longstr locale:shortstr
 20 secure challenge:longstr
 21 secure_ok response:longstr
 30 tune channel_max:short frame_max:long heartbeat:short
 31 tune_ok channel_max:short frame_max:long heartbeat:short
 40 open vhost:shortstr reserved_1:shortstr reserved_2:bit
 41 open_ok reserved_1:shortstr
 50 close code:short text:shortstr class_id:short method_id:short
 51 close_ok
 60 blocked reason:shortstr
 61 unblocked
 70 update_secret new_secret:longstr reason:shortstr
 71 update_secret_ok
20 channel
 10 open reserved_1:shortstr
 11 open_ok reserved_1:longstr
 20 flow active:bit
 21 flow_ok active:bit
 40 close code:short text:shortstr class_id:short method_id:short
 41 close_ok
40 exchange
 10 declare reserved_1:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit nowait:bit arguments:table
 11 declare_ok
 20 delete reserved_1:short exchange:shortstr if_unused:bit nowait:bit
 21 delete_ok
 30 bind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table
 31 bind_ok
 40 unbind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table
 51 unbind_ok
50 queue
 10 declare reserved_1:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit nowait:bit arguments:table
 11 declare_ok queue:shortstr message_count:long consumer_count:long
 20 bind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr nowait:bit arguments:table
 21 bind_ok
 30 purge reserved_1:short queue:shortstr nowait:bit
 31 purge_ok message_count:long
 40 delete reserved_1:short queue:shortstr if_unused:bit if_empty:bit nowait:bit
 41 delete_ok message_count:long
 50 unbind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table
 51 unbind_ok
60 basic
 10 qos prefetch_size:long prefetch_count:short global_qos:bit
 11 qos_ok
 20 consume reserved_1:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit nowait:bit arguments:table
 21 consume_ok consumer_tag:shortstr
 30 cancel consumer_tag:shortstr nowait:bit
 31 cancel_ok consumer_tag:shortstr
 40 publish reserved_1:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit
 50 return code:short text:shortstr exchange:shortstr routing_key:shortstr
 60 deliver consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
 70 get reserved_1:short queue:shortstr no_ack:bit
 71 get_ok delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr message_count:long
 72 get_empty reserved_1:shortstr
 80 ack delivery_tag:longlong multiple:bit
 90 reject delivery_tag:longlong requeue:bit
 100 recover_async requeue:bit
 110 recover requeue:bit
 111 recover_ok
 120 nack delivery_tag:longlong multiple:bit requeue:bit
85 confirm
 10 select nowait:bit
 11 select_ok
90 tx
 10 select
 11 select_ok
 20 commit
 21 commit_ok
 30 rollback
 31 rollback_ok
"""
#: Methods that content follows: a header frame and body frames.
WITH_CONTENT = frozenset({"basic.publish", "basic.return", "basic.deliver", "basic.get_ok"})


class AmqpError(Exception):
    """Bytes that break the rules of AMQP, with the code that a close must carry."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def _spec() -> dict[tuple[int, int], tuple[str, tuple[tuple[str, str], ...]]]:
    found, number, name = {}, 0, ""
    for line in _SAID.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            number, name = int(words[0]), words[1]
            continue
        arguments = tuple((one.partition(":")[0], one.partition(":")[2]) for one in words[2:])
        found[number, int(words[0])] = (f"{name}.{words[1]}", arguments)
    return found


#: (class, method) to name and arguments.
METHODS = _spec()
NUMBERS = {name: number for number, (name, _) in METHODS.items()}
_FIXED = {"octet": struct.Struct(">B"), "short": struct.Struct(">H"), "long": struct.Struct(">I"), "longlong": struct.Struct(">Q")}
_SCALARS = {
    "b": struct.Struct(">b"), "B": struct.Struct(">B"), "s": struct.Struct(">h"), "u": struct.Struct(">H"), "I": struct.Struct(">i"),
    "i": struct.Struct(">I"), "l": struct.Struct(">q"), "f": struct.Struct(">f"), "d": struct.Struct(">d"), "T": struct.Struct(">Q"),
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A method with its arguments by name; those that are left out are zero, empty or false."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["arguments"][name]
        except KeyError:
            raise AttributeError(name) from None

    def encode(self) -> bytes:
        """The payload of its frame."""
        number = NUMBERS[self.name]
        parts, bits = [struct.pack(">HH", *number)], []
        for name, kind in METHODS[number][1]:
            value = self.arguments.get(name)
            if kind == "bit":
                bits.append(bool(value))
                continue
            parts.append(_packed(bits))
            bits = []
            parts.append(_encoded(kind, value))
        return b"".join((*parts, _packed(bits)))


def method_of(payload: bytes) -> Method:
    """The method in a frame's payload."""
    reader = _Reader(payload)
    number = (reader.whole("short"), reader.whole("short"))
    if number not in METHODS:
        raise AmqpError(COMMAND_INVALID, f"found method {number[0]}.{number[1]}, which AMQP 0-9-1 does not have")
    name, arguments = METHODS[number]
    found: dict[str, Any] = {}
    bit = 8
    octet = 0
    for argument, kind in arguments:
        if kind == "bit":
            if bit == 8:
                octet, bit = reader.whole("octet"), 0
            found[argument] = bool(octet >> bit & 1)
            bit += 1
            continue
        bit = 8
        found[argument] = reader.value(kind)
    return Method(name, found)


def _packed(bits: list[bool]) -> bytes:
    return bytes(sum(bit << i for i, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))


def _encoded(kind: str, value: Any) -> bytes:
    if kind in _FIXED:
        return _FIXED[kind].pack(value or 0)
    if kind == "table":
        return encode_table(value or {})
    data = value.encode() if isinstance(value, str) else bytes(value or b"")
    if kind == "shortstr":
        if len(data) > 255:
            raise AmqpError(SYNTAX_ERROR, f"found a short string of {len(data)} bytes; expected at most 255")
        return bytes([len(data)]) + data
    return struct.pack(">I", len(data)) + data


def encode_table(table: Mapping[str, Any]) -> bytes:
    """A field table with its length in front."""
    body = b"".join(_encoded("shortstr", key) + _encoded_field(value) for key, value in table.items())
    return struct.pack(">I", len(body)) + body


def _encoded_field(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t" + bytes([value])
    if isinstance(value, int):
        return b"I" + struct.pack(">i", value) if -(1 << 31) <= value < 1 << 31 else b"l" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, Mapping):
        return b"F" + encode_table(value)
    if isinstance(value, list | tuple):
        body = b"".join(map(_encoded_field, value))
        return b"A" + struct.pack(">I", len(body)) + body
    if value is None:
        return b"V"
    return (b"x" if isinstance(value, bytes) else b"S") + _encoded("longstr", value)


class _Reader:
    """Takes values from bytes and never reads behind them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise AmqpError(SYNTAX_ERROR, f"found {len(self.data) - self.at} bytes of a value of {size}")
        self.at += size
        return self.data[self.at - size : self.at]

    def whole(self, kind: str) -> int:
        form = _FIXED[kind]
        found: int = form.unpack(self.take(form.size))[0]
        return found

    def value(self, kind: str, depth: int = 0) -> Any:
        if kind in _FIXED:
            return self.whole(kind)
        if kind == "table":
            return self.table(depth)
        data = self.take(self.whole("octet" if kind == "shortstr" else "long"))
        return data.decode("utf-8", "replace") if kind == "shortstr" else data

    def table(self, depth: int) -> dict[str, Any]:
        if depth > MOST_NESTING:
            raise AmqpError(SYNTAX_ERROR, f"found more than {MOST_NESTING} tables inside each other")
        inner = _Reader(self.take(self.whole("long")))
        found = {}
        while inner.at < len(inner.data):
            key = inner.value("shortstr")
            found[key] = inner.field(depth + 1)
        return found

    def field(self, depth: int) -> Any:
        mark = self.take(1).decode("latin-1")
        if mark == "t":
            return bool(self.take(1)[0])
        if mark in _SCALARS:
            return _SCALARS[mark].unpack(self.take(_SCALARS[mark].size))[0]
        if mark == "V":
            return None
        if mark == "D":
            scale = self.take(1)[0]
            return _SCALARS["I"].unpack(self.take(4))[0] / 10**scale
        if mark in "Sx":
            data = self.take(self.whole("long"))
            return data.decode("utf-8", "replace") if mark == "S" else data
        if mark == "F":
            return self.table(depth)
        if mark == "A" and depth <= MOST_NESTING:
            inner, found = _Reader(self.take(self.whole("long"))), []
            while inner.at < len(inner.data):
                found.append(inner.field(depth + 1))
            return found
        raise AmqpError(SYNTAX_ERROR, f"found a field of type {mark!r}; expected one that AMQP 0-9-1 has")
