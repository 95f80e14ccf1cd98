"""Rewrites the footer and the page headers of a Parquet file: a small codec of Thrift's compact protocol that keeps the types."""

from __future__ import annotations

import struct
from typing import Any

Fields = dict[int, list[Any]]


class Decoder:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            number = self.unsigned()
            return (number >> 1) ^ -(number & 1)
        if kind == 8:
            length = self.unsigned()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind in (9, 10):
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.unsigned()
            return head & 15, [self.byte() if head & 15 in (1, 2) else self.value(head & 15) for _ in range(count)]
        assert kind == 12, kind
        return self.fields()

    def fields(self) -> Fields:
        found: Fields = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.value(6)
            found[number] = [head & 15, self.value(head & 15)]
        return found


def unsigned(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def encoded(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if kind in (4, 5, 6):
        return unsigned(2 * value if value >= 0 else -2 * value - 1)
    if kind == 8:
        return unsigned(len(value)) + value
    if kind in (9, 10):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + unsigned(len(items))
        return head + b"".join(bytes([item]) if inner in (1, 2) else encoded(inner, item) for item in items)
    return encoded_fields(value)


def encoded_fields(fields: Fields) -> bytes:
    out, last = b"", 0
    for number in sorted(fields):
        kind, value = fields[number]
        kind = (1 if value else 2) if kind in (1, 2) else kind
        out += bytes([number - last << 4 | kind]) + encoded(kind, value)
        last = number
    return out + b"\0"


def split(data: bytes) -> tuple[bytes, Fields]:
    """(everything before the footer, the footer)."""
    (length,) = struct.unpack("<I", data[-8:-4])
    return data[: -8 - length], Decoder(data[-8 - length : -8]).fields()


def joined(body: bytes, footer: Fields) -> bytes:
    packed = encoded_fields(footer)
    return body + packed + struct.pack("<I", len(packed)) + b"PAR1"


def chunk(footer: Fields, column: int = 0) -> Fields:
    """The facts about a column of the first row group."""
    facts: Fields = footer[4][1][1][0][1][1][1][column][3][1]
    return facts
