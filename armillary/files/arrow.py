"""Arrow files (Feather 2) from strangers: what the footer and the batches promise is checked before Polars allocates anything for it.

An Arrow file ends in a footer (FlatBuffers) that says where its batches stand; a batch's own message says how many rows it has and where
its buffers lie, and a packed buffer begins with the number of bytes that it unpacks to. All of them may lie. Offsets may also lead to one
place many times over, so that a kilobyte holds a billion columns: whatever is followed is charged to the bytes that there are.

The format: Apache Arrow, Columnar Format, IPC file format, 2017 and later.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from armillary.errors import InputError, one_line

from .opening import FREE_BYTES, RATIO

if TYPE_CHECKING:
    import polars as pl

_MAGIC = b"ARROW1"
#: Bytes of the largest footer and of the largest message before a batch.
_METADATA = 1 << 24
_DEEPEST = 32
_MOST_BATCHES = 1 << 20
_DICTIONARY, _BATCH = 2, 3


def check_arrow(file: BinaryIO, where: str, limit: int | None) -> tuple[int, list[str]]:
    """(rows, names of the columns) of a file whose buffers lie within it and unpack to as many bytes as a user may expect.

    limit: bytes that all columns may unpack to; 250 times the size of the file and 64 MiB bound them anyway.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < 24 or file.read(6) != _MAGIC:
        raise InputError("found no Arrow data; expected an Arrow file", where=where)
    file.seek(size - 10)
    tail = file.read(10)
    length = int.from_bytes(tail[:4], "little")
    end = size - 10 - length
    if tail[4:] != _MAGIC or not 8 <= length <= _METADATA or end < 8:
        raise InputError(f"found no footer at the end of {size:,} bytes; expected a whole Arrow file", where=where)
    file.seek(end)
    try:
        footer = _Table.root(file.read(length))
        names = _names(footer.child(1), length)
        rows = unpacked = taken = 0
        for slot in (2, 3):
            for offset, _, body in footer.structs(slot, "<qi4xq", _MOST_BATCHES):
                count, more, own = _check_batch(file, offset, body, end)
                taken += own
                if taken > end:
                    raise ValueError("batches that overlap")
                rows += count if slot == 3 else 0
                unpacked += more
    except (struct.error, IndexError, ValueError, RecursionError, AttributeError) as error:
        raise InputError(f"found damaged Arrow data ({one_line(str(error), 80)}); expected a whole file", where=where) from None
    most = min(FREE_BYTES + RATIO * size, limit if limit is not None else FREE_BYTES + RATIO * size)
    if unpacked > most:
        raise InputError(f"found columns that unpack to {unpacked:,} bytes; expected at most {most:,}", where=where)
    return rows, names


def read_arrow(file: BinaryIO, where: str, name: str) -> pl.Series:
    """One column of a file that `check_arrow` has passed."""
    import polars as pl

    try:
        return pl.scan_ipc(f"/proc/self/fd/{file.fileno()}").select(name).collect().to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        message = one_line(str(error).split("\n")[0], 120)
        raise InputError(f"found Arrow data that cannot be read ({message}); expected a whole file", where=where) from None


def _names(schema: _Table, room: int) -> list[str]:
    """Names of the outer columns. The fields and names of an honest footer overlap nowhere, so all of them together fit into its bytes."""
    names, levels = [], [schema.children(1)]
    while levels:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
            continue
        name = field.text(0, room)
        room -= 8 + len(name)
        if room < 0 or len(levels) > _DEEPEST:
            raise ValueError("columns that overlap or are nested too deep")
        if len(levels) == 1:
            names.append(name)
        levels.append(field.children(5))
    return names


def _check_batch(file: BinaryIO, offset: int, body: int, end: int) -> tuple[int, int, int]:
    """(rows, bytes that the buffers unpack to, bytes that it takes) of the batch at an offset, which lies with its body before `end`."""
    if offset < 8 or offset + 8 > end:
        raise ValueError(f"a batch at {offset:,}")
    file.seek(offset)
    first, second = struct.unpack("<Ii", file.read(8))
    start = offset + (8 if first == 0xFFFFFFFF else 4)
    length = second if first == 0xFFFFFFFF else first
    if not 8 <= length <= _METADATA or body < 0 or start + length + body > end:
        raise ValueError(f"a batch of {length:,} and {body:,} bytes at {offset:,}")
    file.seek(start)
    message = _Table.root(file.read(length))
    kind, batch = message.number(1, "<B"), message.child(2)
    if kind not in (_DICTIONARY, _BATCH):
        raise ValueError(f"a message of kind {kind}")
    if kind == _DICTIONARY:
        batch = batch.child(1)
    rows, packed, unpacked = batch.number(0, "<q"), batch.has(3), 0
    for begin, size in batch.structs(2, "<qq", length // 16):
        if begin < 0 or size < 0 or begin + size > body:
            raise ValueError(f"a buffer of {size:,} bytes at {begin:,}")
        if packed and size >= 8:
            file.seek(start + length + begin)
            (whole,) = struct.unpack("<q", file.read(8))
            if whole < -1:
                raise ValueError(f"a buffer that unpacks to {whole:,} bytes")
            size = size - 8 if whole == -1 else whole
        unpacked += size
    # A value takes one bit at least.
    if not 0 <= rows <= 8 * unpacked or any(not 0 <= count <= 8 * unpacked for count, _ in batch.structs(1, "<qq", length // 16)):
        raise ValueError(f"a batch of {rows:,} rows in {unpacked:,} bytes")
    return rows, unpacked, length + body


class _Table:
    """A table of FlatBuffers; fields are asked for by their number in the schema."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        table = at - struct.unpack_from("<i", data, at)[0]
        if at < 0 or table < 0:
            raise ValueError("a table outside its bytes")
        self._fields = struct.unpack_from(f"<{max(0, struct.unpack_from('<H', data, table)[0] // 2 - 2)}H", data, table + 4)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def has(self, field: int) -> bool:
        return field < len(self._fields) and self._fields[field] != 0

    def number(self, field: int, form: str) -> int:
        return int(struct.unpack_from(form, self._data, self._at + self._fields[field])[0]) if self.has(field) else 0

    def child(self, field: int) -> _Table:
        if not self.has(field):
            raise ValueError(f"no field {field}")
        return _Table(self._data, self._leads(self._at + self._fields[field]))

    def children(self, field: int) -> Iterator[_Table]:
        first, count = self._vector(field, 4, len(self._data) // 4)
        return (_Table(self._data, self._leads(first + 4 * i)) for i in range(count))

    def structs(self, field: int, form: str, most: int) -> list[tuple[int, ...]]:
        width = struct.calcsize(form)
        first, count = self._vector(field, width, most)
        return [struct.unpack_from(form, self._data, first + width * i) for i in range(count)]

    def text(self, field: int, most: int) -> str:
        first, count = self._vector(field, 1, most)
        return self._data[first : first + count].decode()

    def _leads(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def _vector(self, field: int, width: int, most: int) -> tuple[int, int]:
        """(place of the first element, number of elements), all of which lie within the bytes."""
        if not self.has(field):
            return 0, 0
        at = self._leads(self._at + self._fields[field])
        count = int(struct.unpack_from("<I", self._data, at)[0])
        if count > most or at + 4 + count * width > len(self._data):
            raise ValueError(f"{count:,} elements")
        return at + 4, count
