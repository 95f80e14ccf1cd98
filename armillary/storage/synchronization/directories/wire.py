"""What two replicas say to each other, as bytes: numbers, texts and versions, in frames with a length and CRC-32C. Nothing is evaluated.

A frame is twelve bytes and a body: length of the body, CRC-32C of the body, CRC-32C of these eight bytes (big-endian, 32 bits each). In a
body a number is LEB128 (seven bits per byte, low first), and bytes are preceded by their number. A length is checked before it is used.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from armillary.errors import InputError, one_line

from ..replicas.link_register import Phase, Word
from ..replicas.versions import Item, Version
from ..world.protocol import Message
from .entries import KINDS, MODE, Entry, check_entry_path, entry, raw, text

FORMAT = 1
HEAD = struct.Struct(">III")
#: The largest body that is taken, in bytes. An offer of a million versions fits.
MOST_BYTES = 1 << 28
#: The largest number that is taken. One more still fits SQLite's integers.
MOST_NUMBER = (1 << 62) - 1
#: Bytes of a file in one frame.
PIECE = 1 << 18
WHERE = "wire"

HELLO, LINK, WANT, BLOB, GONE, STALE, TURN, BYE = range(1, 9)
LINK_KINDS = ("offer", "hold", "commit", "done", "resume", "register", "state")
_PHASES = tuple(Phase)


class Writer:
    """Builds a body."""

    def __init__(self, tag: int | None = None) -> None:
        self._parts = bytearray() if tag is None else bytearray((tag,))

    def number(self, value: int) -> Writer:
        """Adds a number from 0 on."""
        while value > 127:
            self._parts.append(value & 127 | 128)
            value >>= 7
        self._parts.append(value)
        return self

    def blob(self, value: bytes) -> Writer:
        """Adds bytes with their number before them."""
        self.number(len(value))
        self._parts += value
        return self

    def text(self, value: str) -> Writer:
        """Adds text, with undecodable bytes as they were."""
        return self.blob(raw(value))

    def done(self) -> bytes:
        """Returns the body."""
        return bytes(self._parts)


class Reader:
    """Takes a body apart; whatever does not fit is an InputError."""

    def __init__(self, body: bytes, where: str = WHERE) -> None:
        self._body, self._at, self.where = body, 0, where

    def wrong(self, found: str, expected: str) -> InputError:
        """Returns the error for this place."""
        return InputError(f"byte {self._at}: found {found}; expected {expected}", where=self.where)

    def number(self, most: int = MOST_NUMBER) -> int:
        """Reads a number from 0 to `most`."""
        value = shift = 0
        while True:
            if self._at >= len(self._body) or shift > 63:
                raise self.wrong("no end of a number", "seven bits per byte")
            byte = self._body[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if value > most:
            raise self.wrong(str(value), f"at most {most}")
        return value

    def blob(self, most: int = MOST_BYTES) -> bytes:
        """Reads bytes with their number before them."""
        length = self.number(min(most, len(self._body)))
        if length > len(self._body) - self._at:
            raise self.wrong(f"a length of {length}", f"{len(self._body) - self._at} bytes that are left")
        self._at += length
        return self._body[self._at - length : self._at]

    def text(self, most: int = 1 << 16) -> str:
        """Reads text."""
        return text(self.blob(most))

    def count(self, least: int = 1) -> int:
        """Reads how many things follow, of at least `least` bytes each."""
        return self.number((len(self._body) - self._at) // least)

    def name(self, digits: int = 32) -> str:
        """Reads an id in lower-case hexadecimal."""
        found = self.blob(digits // 2)
        if len(found) != digits // 2:
            raise self.wrong(f"{len(found)} bytes", f"{digits // 2} of an id")
        return found.hex()

    def end(self) -> None:
        """Refuses anything that follows."""
        if self._at != len(self._body):
            raise self.wrong(f"{len(self._body) - self._at} bytes more", "the end")


@functools.lru_cache(4)
def _items_bytes(kept: _Same) -> bytes:
    into = Writer().number(len(kept.items))
    for (author, number), one in kept.items:
        into.blob(bytes.fromhex(author)).number(number).blob(bytes.fromhex(one.id)).text(one.file).number(len(one.parents))
        for parent in one.parents:
            into.blob(bytes.fromhex(parent))
        holds = entry(one)
        into.text(one.path).text(one.group).number(0 if holds is None else 1 + KINDS.index(holds.kind))
        if holds is not None:
            data = bytes.fromhex(holds.data) if holds.kind == "file" else raw(holds.data)
            into.number(holds.mode).number(holds.size).blob(data)
    return into.done()


class _Same:
    """A tuple as a key by identity, because a set of versions is written for the register and again for the wire."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.items = items

    def __hash__(self) -> int:
        return id(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.items is self.items


def items_bytes(items: tuple[Item, ...]) -> bytes:
    """Encodes versions with their dots, parents first, as they are sent and as a register keeps them."""
    return _items_bytes(_Same(items))


def read_items(source: Reader, state: str) -> tuple[Item, ...]:
    """Reads versions with their dots; every path stays below the root and outside the folder named `state`."""
    return tuple(_read_item(source, state) for _ in range(source.count(40)))


def _read_item(source: Reader, state: str) -> Item:
    author, number, id, file = source.name(), source.number(), source.name(), source.text(255)
    parents = tuple(source.name() for _ in range(source.count(17)))
    path, group, kind = source.text(), source.text(255), source.number(len(KINDS))
    check_entry_path(path, state, source.where)
    holds: Entry | None = None
    if kind:
        mode, size = source.number(MODE), source.number()
        data = source.name(64) if kind == 1 else source.text()
        if (kind == 2 and data) or (kind == 3 and (not data or "\0" in data)):
            raise source.wrong("a target", "one for links and none for directories")
        holds = Entry(KINDS[kind - 1], mode, size, data)
    return (author, number), Version(id, file, parents, path, holds, group, ())  # type: ignore[arg-type]


def write_summary(into: Writer, summary: Mapping[str, int]) -> Writer:
    """Adds how many versions of each author there are."""
    into.number(len(summary))
    for author, count in summary.items():
        into.blob(bytes.fromhex(author)).number(count)
    return into


def read_summary(source: Reader) -> dict[str, int]:
    """Reads how many versions of each author there are."""
    return {source.name(): source.number() for _ in range(source.count(18))}


def link_body(message: Message) -> bytes:
    """Encodes a message of the link register."""
    word: Word = message.body
    into = Writer(LINK).number(LINK_KINDS.index(message.kind)).number(word.epoch).number(word.n)
    write_summary(into, word.summary)
    into.blob(bytes.fromhex(word.digest)).number(_PHASES.index(word.phase)).number(word.nonce)
    return into.done() + items_bytes(word.items)


def read_link(source: Reader, state: str) -> Message:
    """Reads a message of the link register."""
    kind, epoch, n = LINK_KINDS[source.number(len(LINK_KINDS) - 1)], source.number(), source.number()
    summary, name = read_summary(source), source.blob(16).hex()
    phase, nonce = _PHASES[source.number(len(_PHASES) - 1)], source.number()
    items = read_items(source, state)
    source.end()
    return Message(kind, Word(epoch, n, summary, items, name, phase, nonce))


@dataclass(frozen=True)
class Transport:
    """A two-way stream of bytes: `read(n)` gives n bytes (fewer if the other end is gone), `write` sends, `flush` pushes out.

    A socket's `recv` and `sendall` will do, or the methods of a pipe's files.
    """

    read: Callable[[int], bytes]
    write: Callable[[bytes], object]
    flush: Callable[[], object] = lambda: None

    def send(self, body: bytes) -> None:
        """Sends one frame."""
        from armillary.files.checksums import crc32c

        head = struct.pack(">II", len(body), crc32c(body))
        try:
            self.write(head + struct.pack(">I", crc32c(head)))
            self.write(body)
        except OSError as error:
            raise _gone(error) from None

    def push(self) -> None:
        """Pushes out what was sent."""
        try:
            self.flush()
        except OSError as error:
            raise _gone(error) from None

    def receive(self) -> bytes:
        """Receives the next frame's body; raises InputError where it is not what was sent."""
        from armillary.files.checksums import crc32c

        head = self._exactly(HEAD.size)
        length, body_crc, head_crc = HEAD.unpack(head)
        if crc32c(head[:8]) != head_crc:
            raise InputError("found a damaged frame head; expected its CRC-32C to agree", where=WHERE)
        if length > MOST_BYTES:
            raise InputError(f"found a frame of {length} bytes; expected at most {MOST_BYTES}", where=WHERE)
        body = self._exactly(length)
        if crc32c(body) != body_crc:
            raise InputError("found a damaged frame; expected its CRC-32C to agree", where=WHERE)
        return body

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self.read(min(count, 1 << 20))
            except OSError as error:
                raise _gone(error) from None
            if not part:
                raise _gone(None)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _gone(error: OSError | None) -> InputError:
    found = "the end of the stream" if error is None else one_line(error.strerror or str(error), 80)
    return InputError(f"found {found}; expected a frame: the other end is gone", where=WHERE)
