"""CSV and TSV in blocks of whole rows.

Polars splits a block when it is certain that every row has as many cells as the header: the delimiters and line ends of the block,
without everything else and without quoted cells, must be one pattern repeated. Whatever is not so regular goes to Python's own reader,
which also finds the line of a fault.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.errors import InputError, one_line

from .columns import placed
from .opening import LINE_BYTES, decoded, line_blocks
from .sources import BLOCK_BYTES, COLUMNS, Block, Source

if TYPE_CHECKING:
    import polars as pl

_BLANK = re.compile(rb"(?m)^\r?\n")


@dataclass
class Delimited(Source):
    """A file of delimited cells; the parameters are those of `read_table`."""

    header: bool | Sequence[str]
    delimiter: str
    comment: str
    #: The file's columns, and where among them the declared ones stand; known once the header was read.
    _names: list[str] = field(default_factory=list)
    _at: dict[str, int] = field(default_factory=dict)

    def names(self) -> list[str]:
        self._open(self._texts())
        return self._names

    def _open(self, texts: Iterator[tuple[bytes, int]]) -> tuple[bytes, int]:
        """Reads the header; returns the rest of the first block and the number of its first line."""
        where = str(self.path)
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise InputError(f"found {self.delimiter!r}; expected one ASCII character", where="delimiter")
        block, line = next(texts, (b"", 1))
        rows = self._rows(block, line)
        number, row, after = next(rows, (1, [], 0))
        if not row:
            raise InputError("found no header; expected the names of the columns" if self.header is True else "found no rows", where=where)
        if len(row) > COLUMNS:
            raise InputError(f"found {len(row):,} columns; expected at most {COLUMNS:,}", where=f"{where}:{number}")
        if self.header is not True:
            given = list(self.header) if self.header else [column.name for column in self.columns]
            self._names = [*given[: len(row)], *(f"column {i + 1}" for i in range(len(given), len(row)))]
            after = 0
        else:
            self._names = [name.strip() for name in row]
        self._at = placed(self.columns, self._names, f"{where}:{number}", refuse_unknown=self.refuse_unknown)
        cut = 0
        for _ in range(after):
            cut = block.index(b"\n", cut) + 1
        return block[cut:], line + after

    def blocks(self) -> Iterator[Block]:
        texts = self._texts()
        yield _Rows(self, *self._open(texts))
        for block, line in texts:
            yield _Rows(self, block, line)

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        """The (rows, number of the first line) of blocks that end where a row does, although a quoted cell may hold line ends."""
        rest, start = b"", 1
        for block, line in line_blocks(self.path, limit=self.limit, size=BLOCK_BYTES):
            if rest:
                block, line = rest + block, start
            rest = b""
            if b'"' in block and block.count(b'"') % 2:
                cut = _even_cut(block)
                block, rest, start = block[:cut], block[cut:], line + block.count(b"\n", 0, cut)
                if len(rest) > LINE_BYTES:
                    message = f"found a quoted cell of more than {LINE_BYTES:,} bytes; expected its closing quotation mark"
                    raise InputError(message, where=f"{self.path}:{start}")
            if block:
                yield block, line
        if rest:
            yield rest, start

    def _rows(self, block: bytes, line: int) -> Iterator[tuple[int, list[str], int]]:
        """The (line, cells, lines up to its end) of each row, by Python's own reader, which is slow and decides what a row is."""
        csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
        reader = csv.reader(io.StringIO(decoded(block, self.path, line), newline=""), delimiter=self.delimiter, strict=True)
        while True:
            before = reader.line_num
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(f"cannot be read as CSV ({one_line(str(error), 80)})", where=f"{self.path}:{line + before}") from None
            if not any(row) or (len(row) == 1 and not row[0].strip()) or (self.comment and row[0].lstrip().startswith(self.comment)):
                continue
            yield line + before, row, reader.line_num

    def cells(self, block: bytes, line: int) -> pl.DataFrame:
        """The declared columns of a block as text."""
        import polars as pl

        found = self._cells_by_polars(block, line)
        if found is not None:
            return found
        rows = []
        for number, row, _ in self._rows(block, line):
            if len(row) != len(self._names):
                raise InputError(f"found {_cells(len(row))}; expected {len(self._names)}", where=f"{self.path}:{number}")
            rows.append(row)
        return pl.DataFrame({name: [row[i] for row in rows] for name, i in self._at.items()}, schema=dict.fromkeys(self._at, pl.String))

    def _cells_by_polars(self, block: bytes, line: int) -> pl.DataFrame | None:
        """The result of `cells`, found fast, or None if something in the block makes rows hard to tell."""
        import polars as pl

        if not block.isascii() or b"\0" in block:
            decoded(block, self.path, line)
        quotes = b'"' in block
        if self.comment and (block.startswith(self.comment.encode()) or b"\n" + self.comment.encode() in block):
            return None
        if not self._is_regular(block, quotes):
            block = b"" if quotes else _BLANK.sub(b"", block)
            if not self._is_regular(block, False):
                return None
        try:
            frame = pl.read_csv(
                block, has_header=False, separator=self.delimiter, quote_char='"' if quotes else None, columns=sorted(self._at.values()),
                schema={f"column_{i + 1}": pl.String for i in range(len(self._names))},
            )  # fmt: skip
        except pl.exceptions.PolarsError:
            return None
        frame = frame.select([frame[f"column_{i + 1}"].alias(name) for name, i in self._at.items()])
        empty = [series.is_null() | (series == "") for series in frame if quotes or series.null_count()]
        # A row that has only empty cells is blank, which only all of its cells can tell.
        if empty and len(empty) == frame.width and pl.select(pl.all_horizontal(*empty).fill_null(True).any()).item():
            return None
        if len(self._names) == 1 and any((series.str.strip_chars() == "").any() for series in frame):
            return None
        return frame

    def _is_regular(self, block: bytes, quotes: bool) -> bool:
        """Whether every row has a cell for each column, no line is blank, and quotation marks stand at both ends of cells only."""
        shape, width = block, len(self._names)
        if quotes:
            if block.count(b'"') % 2:
                return False
            # Text between pairs of quotation marks is dropped, and every other cell becomes a run of x.
            shape = b'"'.join(block.split(b'"')[::2]).translate(_shapes(self.delimiter))
            if any(wrong in shape for wrong in (b'x"', b'"x', b'\r"')):
                return False
        marks = shape.translate(*_marks("," if quotes else self.delimiter))
        if width == 1 and (shape[:1] in (b"\n", b"\r") or b"\n\n" in shape or b"\n\r" in shape):
            return False
        if b"\r" in marks and shape.count(b"\r") != shape.count(b"\r\n"):
            return False
        row = b"," * (width - 1) + (b"\r\n" if b"\r" in marks else b"\n")
        return bool(marks) and marks == row * (len(marks) // len(row))


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"


@functools.cache
def _shapes(delimiter: str) -> bytes:
    """A translation to one letter for each kind of byte."""
    kept = {ord(delimiter): b",", ord("\n"): b"\n", ord("\r"): b"\r", ord('"'): b'"'}
    return b"".join(kept.get(byte, b"x") for byte in range(256))


@functools.cache
def _marks(delimiter: str) -> tuple[bytes, bytes]:
    """A translation that makes delimiters commas, and the bytes that are neither delimiter nor line end."""
    return bytes(44 if byte == ord(delimiter) else byte for byte in range(256)), bytes(set(range(256)) - {10, 13, ord(delimiter)})


def _even_cut(block: bytes) -> int:
    """The last place after a line end before which there is an even number of quotation marks."""
    at, odd = len(block), True
    while odd and at:
        last = block.rfind(b'"', 0, at)
        cut = block.rfind(b"\n", 0, last) + 1
        odd ^= block.count(b'"', cut, at) % 2 == 1
        at = cut
    return at


class _Rows(Block):
    def __init__(self, source: Delimited, block: bytes, line: int) -> None:
        self._source, self._text, self._line = source, block, line
        self.cells = source.cells(block, line)

    def where(self, row: int) -> str:
        numbers = (number for number, _, _ in self._source._rows(self._text, self._line))
        return f"{self._source.path}:{next(number for i, number in enumerate(numbers) if i == row)}"
