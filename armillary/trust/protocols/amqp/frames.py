"""Frames of AMQP 0-9-1: a type, a channel, a size, a payload and 0xCE; and the header and bodies of a message's content."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .methods import FRAME_ERROR, UNEXPECTED_FRAME, WITH_CONTENT, AmqpError, Method, method_of

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
_HEAD = struct.Struct(">BHI")
#: Bytes of the largest frame before one is negotiated, and of a frame around its payload.
LEAST_MAX, OVERHEAD = 4096, 8


class Frame(NamedTuple):
    """One frame."""

    type: int
    channel: int
    payload: bytes

    def encode(self) -> bytes:
        """Its bytes."""
        return _HEAD.pack(self.type, self.channel, len(self.payload)) + self.payload + bytes([FRAME_END])


def method_frame(channel: int, method: Method) -> bytes:
    """The bytes of a method."""
    return Frame(METHOD, channel, method.encode()).encode()


def content_frames(channel: int, body: bytes, most: int, *, persistent: bool = False) -> bytes:
    """The bytes of a message's content: a header, and bodies that fit into frames of at most `most` bytes."""
    flags, properties = (0x1000, b"\x02") if persistent else (0, b"")
    head = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
    room = most - OVERHEAD
    parts = [Frame(HEADER, channel, head).encode()]
    parts += [Frame(BODY, channel, body[at : at + room]).encode() for at in range(0, len(body), room)]
    return b"".join(parts)


class Frames:
    """Takes bytes as they come and gives whole frames; `offset` is where the next one begins."""

    def __init__(self, most: int = LEAST_MAX) -> None:
        #: Bytes of the largest frame that is permitted; 0 would mean any, so the caller sets a bound.
        self.most = most
        self.offset = 0
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete."""
        self._data += data
        at = 0
        try:
            while len(self._data) - at >= _HEAD.size:
                kind, channel, size = _HEAD.unpack_from(self._data, at)
                if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
                    raise AmqpError(FRAME_ERROR, f"found a frame of type {kind}; expected 1, 2, 3 or 8")
                if size + OVERHEAD > self.most:
                    raise AmqpError(FRAME_ERROR, f"found a frame of {size + OVERHEAD:,} bytes; expected at most {self.most:,}")
                end = at + _HEAD.size + size
                if len(self._data) <= end:
                    break
                if self._data[end] != FRAME_END:
                    raise AmqpError(FRAME_ERROR, f"found 0x{self._data[end]:02X} at the end of a frame; expected 0xCE")
                payload = bytes(self._data[at + _HEAD.size : end])
                at = end + 1
                self.offset += OVERHEAD + size
                yield Frame(kind, channel, payload)
        finally:
            del self._data[:at]

    @property
    def rest(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._data)


class Contents:
    """Puts one channel's methods together with their content."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._method: Method | None = None
        self._left = -1
        self._body = bytearray()

    def take(self, frame: Frame) -> tuple[Method, bytes] | None:
        """A method with its content, once all of it has come."""
        if frame.type == METHOD:
            if self._method is not None:
                raise AmqpError(UNEXPECTED_FRAME, f"found a method within the content of {self._method.name}")
            method = method_of(frame.payload)
            if method.name not in WITH_CONTENT:
                return method, b""
            self._method, self._left = method, -1
            return None
        if self._method is None:
            raise AmqpError(UNEXPECTED_FRAME, "found content without a method")
        if frame.type == HEADER:
            return self._header(frame.payload)
        if self._left < 0 or len(frame.payload) > self._left:
            raise AmqpError(UNEXPECTED_FRAME, "found a body that its header does not announce")
        self._body += frame.payload
        self._left -= len(frame.payload)
        return self._complete()

    def _header(self, payload: bytes) -> tuple[Method, bytes] | None:
        if self._left >= 0 or len(payload) < 14:
            raise AmqpError(UNEXPECTED_FRAME, "found a header that does not fit; expected one of at least 14 bytes after its method")
        size = struct.unpack_from(">Q", payload, 4)[0]
        if size > self.most_bytes:
            raise AmqpError(FRAME_ERROR, f"found a message of {size:,} bytes; expected at most {self.most_bytes:,}")
        self._left = size
        return self._complete()

    def _complete(self) -> tuple[Method, bytes] | None:
        if self._left or self._method is None:
            return None
        found = (self._method, bytes(self._body))
        self._method, self._left = None, -1
        self._body.clear()
        return found
