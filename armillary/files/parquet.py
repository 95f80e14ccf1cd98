"""Parquet files from strangers: what the footer and the page headers promise is checked before Polars allocates anything for it.

A Parquet file ends in a footer (Thrift's compact protocol) that says how many rows there are and where the pages of each column
stand; a page's own header says how many values it holds and how many bytes it unpacks to. All of them may lie.

The format: Apache Parquet, parquet.thrift, 2013 and later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from armillary.errors import InputError, one_line

from .columns import Column, placed
from .opening import FREE_BYTES, LINE_BYTES, RATIO, STREAM_BYTES, Name, open_file
from .sources import Block, Source

if TYPE_CHECKING:
    import polars as pl

_MAGIC = b"PAR1"
#: Bytes of the largest footer and of the largest page header; both hold statistics.
_FOOTER = 1 << 26
_PAGE_HEADER = 1 << 20
_DEEPEST = 32
#: Rows that are decoded at a time.
_BLOCK_ROWS = 1 << 20


class Parquet(Source):
    """A Parquet file; the parameters are those of `read_table`."""

    def __init__(self, path: Name, columns: Sequence[Column], limit: int | None, refuse_unknown: bool) -> None:
        super().__init__(path, columns, limit, refuse_unknown)
        with open_file(path, limit=limit, seekable=True) as file:
            self.rows, self._names = check_parquet(file, str(path), [name for c in columns for name in c.names], limit)
        self._at = placed(columns, self._names, str(path), refuse_unknown=refuse_unknown)

    def names(self) -> list[str]:
        return self._names

    def frames(self, first: int | None, row_limit: int | None) -> Iterator[tuple[int, pl.DataFrame]]:
        if row_limit is not None and min(self.rows, first or self.rows) > row_limit:
            raise InputError(f"found {self.rows:,} rows; expected at most {row_limit:,}", where=str(self.path))
        return super().frames(first, row_limit)

    def blocks(self) -> Iterator[Block]:
        wanted = [self._names[i] for i in self._at.values()]
        with open_file(self.path, limit=self.limit, seekable=True) as file:
            for start, frame in read_parquet(file, str(self.path), wanted, self.rows):
                yield _Rows(self, start, frame.rename(dict(zip(wanted, self._at, strict=True))))

    def where(self, row: int) -> str:
        return f"{self.path}: row {row + 1}"


class _Rows(Block):
    def __init__(self, source: Parquet, start: int, cells: pl.DataFrame) -> None:
        self._source, self._start, self.cells = source, start, cells

    def where(self, row: int) -> str:
        return self._source.where(self._start + row)


def check_parquet(file: BinaryIO, where: str, wanted: Sequence[str], limit: int | None, lists: Sequence[str] = ()) -> tuple[int, list[str]]:
    """(rows, names of the columns) of a file whose columns `wanted` are flat and whose pages fit what the footer says.

    limit: bytes that the wanted columns may unpack to; 250 times the size of the file and 64 MiB bound them anyway. Columns in `lists`
    may hold a list per row, whose values count with eight bytes each.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < 12 or file.read(4) != _MAGIC:
        raise InputError("found no Parquet data; expected a Parquet file", where=where)
    file.seek(size - 8)
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < length <= min(size - 12, _FOOTER):
        raise InputError(f"found no footer at the end of {size:,} bytes; expected a whole Parquet file", where=where)
    file.seek(size - 8 - length)
    try:
        footer = _Thrift(file.read(length)).struct()
        rows, names = int(footer[3]), _top_names(footer[2])
        groups = [(int(group[3]), list(group[1])) for group in footer.get(4, [])]
        if rows < 0 or any(count < 0 for count, _ in groups) or sum(count for count, _ in groups) != rows:
            raise InputError(f"found {rows:,} rows in all and others in the row groups; expected the same", where=where)
        total = 0
        for count, chunks in groups:
            for chunk in chunks:
                path = [part.decode() for part in chunk[3][3]]
                named = f'{where}: column "{one_line(path[0], 60)}"'
                begin, packed = _place(chunk[3], size - 8 - length, named)
                if path[0] in lists:
                    values = int(chunk[3][5])
                    total += _check_pages(file, begin, packed, values, values, named) + 8 * values
                elif path[0] in wanted:
                    if len(path) > 1:
                        raise InputError("found nested values; expected one per row", where=named)
                    total += _check_pages(file, begin, packed, int(chunk[3][5]), count, named)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise InputError("found a damaged footer; expected a whole Parquet file", where=where) from None
    most = min(FREE_BYTES + RATIO * size, limit if limit is not None else FREE_BYTES + RATIO * size)
    if total > most:
        raise InputError(f"found columns that unpack to {total:,} bytes; expected at most {most:,}", where=where)
    return rows, names


def read_parquet(file: BinaryIO, where: str, names: Sequence[str], rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """(first row, frame) of consecutive parts of some columns of a file that `check_parquet` has passed; at least one part."""
    import polars as pl

    lazy = pl.scan_parquet(f"/proc/self/fd/{file.fileno()}", glob=False, hive_partitioning=False).select(names)
    text = 0
    for start in range(0, max(rows, 1), _BLOCK_ROWS):
        try:
            frame = lazy.slice(start, _BLOCK_ROWS).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
            message = one_line(str(error).split("\n")[0], 160)
            raise InputError(f"found Parquet data that cannot be read ({message}); expected a whole file", where=where) from None
        if frame.height != min(_BLOCK_ROWS, rows - start):
            raise InputError(f"found fewer rows than the {rows:,} of the footer; expected as many", where=where)
        for series in frame:
            if series.dtype == pl.String:
                lengths: Any = series.str.len_bytes()
                # A dictionary makes millions of long texts out of one.
                text += int(lengths.sum() or 0)
                if int(lengths.max() or 0) > LINE_BYTES or text > STREAM_BYTES:
                    raise InputError(f'column "{one_line(series.name, 60)}": found texts that are too long', where=where)
        yield start, frame


def _top_names(schema: list[dict[int, Any]]) -> list[str]:
    """The columns below the root; the schema lists a tree depth first."""
    names, at = [], 1
    for _ in range(int(schema[0].get(5, 0))):
        names.append(schema[at][4].decode())
        waiting = 1
        while waiting:
            waiting += int(schema[at].get(5, 0)) - 1
            at += 1
    return names


def _place(facts: dict[int, Any], end: int, where: str) -> tuple[int, int]:
    """(first byte, bytes) of one column of one row group."""
    packed, starts = int(facts[7]), [int(facts[field]) for field in (9, 11) if facts.get(field)]
    if packed < 0 or min(starts) < 4 or max(max(starts), min(starts) + packed) > end:
        raise InputError(f"found {packed:,} bytes at {min(starts):,}; expected a place within the file", where=where)
    return min(starts), packed


def _check_pages(file: BinaryIO, start: int, packed: int, values: int, rows: int, where: str) -> int:
    """The bytes that one column of one row group unpacks to, by its page headers."""
    if values != rows:
        raise InputError(f"found {values:,} values; expected {rows:,}, one per row", where=where)
    end = start + packed
    at, seen, unpacked = start, 0, 0
    while seen < rows and at < end:
        file.seek(at)
        header = _Thrift(file.read(min(_PAGE_HEADER, end - at)))
        page = header.struct()
        held = page.get(5) or page.get(8)
        if int(page[2]) < 0 or int(page[3]) < 0 or (held and int(held[1]) < 0):
            raise InputError("found a page of negative size; expected a whole Parquet file", where=where)
        seen += int(held[1]) if held else 0
        unpacked += int(page[2])
        at += header.at + int(page[3])
    if seen != rows or at > end:
        message = f"found pages of {seen:,} values in {at - start:,} bytes; expected {rows:,} in {packed:,}"
        raise InputError(message, where=where)
    return unpacked


class _Thrift:
    """A reader of Thrift's compact protocol: a struct becomes a dict from field number to value."""

    def __init__(self, data: bytes) -> None:
        self.at, self._data = 0, data

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            if count > len(self._data) - self.at:
                raise ValueError("a list longer than its bytes")
            # Within a list a truth value is a byte of its own.
            return [self._byte() if head & 15 in (1, 2, 3) else self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (3, 7):
            return self._bytes(1 if kind == 3 else 8)
        raise ValueError("an unknown type")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("longer than its bytes")
        self.at += count
        return self._data[self.at - count : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("too long a number")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
