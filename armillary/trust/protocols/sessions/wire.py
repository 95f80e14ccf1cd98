"""A message as bytes: four bytes of length, then JSON in which bytes are Base64."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Any

from ..endpoints.session import Message, ProtocolError

#: Bytes of the longest message, unless the caller says otherwise.
MOST_BYTES = 1 << 20
LENGTH = struct.Struct(">I")
Types = Mapping[tuple[str, str], tuple[str, ...]]


class BadMessage(ProtocolError):
    """Bytes that are no message."""


def encode(message: Message, most: int = MOST_BYTES) -> bytes:
    """A message with its length in front."""
    row = [message.sender, message.receiver, message.label, [_plain(one) for one in message.payload], message.tags, message.number]
    data = json.dumps(row, separators=(",", ":"), default=_plain).encode()
    if len(data) > most:
        raise BadMessage(f'"{message.label}": found {len(data):,} bytes; expected at most {most:,}')
    return LENGTH.pack(len(data)) + data


def decode(data: bytes, types: Types) -> Message:
    """The message in some bytes (without their length); `types` says what the receiver expects of each (sender, label)."""
    try:
        sender, receiver, label, payload, tags, number = json.loads(data)
        kinds = types.get((sender, label), ("json",) * len(payload))
        values = tuple(_typed(kind, one) for kind, one in zip(kinds, payload)) if len(kinds) == len(payload) else tuple(payload)
        if not all(isinstance(one, str) for one in (sender, receiver, label)) or type(number) is not int:
            raise ValueError("names and number")
        return Message(sender, receiver, label, values, tuple((_whole(k), _whole(n), str(side)) for k, n, side in tags), number)
    except (ValueError, TypeError, RecursionError, binascii.Error) as problem:
        raise BadMessage(f"found {len(data)} bytes that are no message; expected JSON of six parts") from problem


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("a tag's numbers are whole")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _typed(kind: str, value: Any) -> Any:
    if kind == "bytes":
        return base64.b64decode(value, validate=True)
    if kind.endswith("[]") and isinstance(value, list):
        return [_typed(kind[:-2], one) for one in value]
    return value
