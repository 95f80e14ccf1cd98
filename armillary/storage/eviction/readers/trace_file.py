"""A trace file: its format is detected, its content checked and streamed.

A stream takes the memory of one block of requests, a few MiB of text and the id table (`armillary.storage.idmap`); nothing else grows
with the length of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line, unknown

from ...idmap import IdMap
from ..workload import BLOCK_REQUESTS, Block, Trace, at_least_one, positive
from . import block_io, oracle_general, twitter
from .delimited import Table, guess_roles, ids_are_text, is_number, looks_like_header, parse_roles
from .fields import NO_DELIMITER, split
from .requests import Requests, TextFormat
from .stream import check_file, whole_lines

FORMATS = ("oracleGeneral", "csv", "text", "twitter", "msr", "alibaba", "tencent")
#: The most requests that `TraceFile.load` takes, unless asked otherwise; they are 2 GiB of ids and 4 GiB of sizes.
LOAD_REQUESTS = 2**29
#: The number of rows from which the format of a table is judged.
_SNIFF_ROWS = 20
_DELIMITERS = {",": 44, "comma": 44, "\t": 9, "tab": 9, ";": 59, "|": 124, " ": 32, "space": 32}


@dataclass(frozen=True)
class TraceFile:
    """A trace file whose format is known and whose beginning is sound; the rest is checked as it is read."""

    path: Path
    #: One of `FORMATS`.
    format: str
    #: The number of requests, where the length of the file tells it.
    requests: int | None = None
    #: Makes a fresh reader of rows; None for records.
    _rows: Callable[[], TextFormat] | None = field(default=None, repr=False)
    _delimiter: int = field(default=NO_DELIMITER, repr=False)
    _header: bool = field(default=False, repr=False)

    def blocks(self, requests: int = BLOCK_REQUESTS) -> Iterator[Block]:
        """The trace in consecutive blocks of `requests`; ids are dense in order of first appearance over the whole file."""
        most = positive("requests", requests)
        assembly = _Assembly(self.path)
        rows = self._rows() if self._rows else None
        ids = IdMap(words=rows.words if rows else 1)
        promises = oracle_general.Promises()
        for part in self._requests(rows):
            objects = ids.map(part.first, part.second)
            if part.promised is not None:
                promises.check(objects, part.promised, len(ids))
                part = part if promises.kept else replace(part, promised=None)
            done = 0
            while done < len(objects):
                take = min(most - assembly.count, len(objects) - done)
                assembly.add(objects[done : done + take], part, slice(done, done + take))
                done += take
                if assembly.count == most:
                    yield assembly.block(ids)
        if assembly.count:
            yield assembly.block(ids)
        if not len(ids):
            raise InputError("found no request; expected at least one", where=str(self.path))

    def load(self, most: int = LOAD_REQUESTS) -> Trace:
        """The whole trace in memory; an error if it has more than `most` requests."""
        blocks: list[Block] = []
        for block in self.blocks():
            if block.start + len(block) > positive("most", most):
                message = f"found more than {most} requests; expected fewer to load at once (stream it with blocks())"
                raise InputError(message, where=str(self.path))
            blocks.append(block)
        last = blocks[-1]
        return Trace(
            np.concatenate([block.objects for block in blocks]),
            last.distinct,
            None if last.sizes is None else np.concatenate([block.sizes for block in blocks]),
            None if last.operations is None else np.concatenate([block.operations for block in blocks]),
            self.path.name,
            None if last.keys is None else last.keys.copy(),
        )

    def _requests(self, rows: TextFormat | None) -> Iterator[Requests]:
        if rows is None:
            yield from oracle_general.requests(self.path, oracle_general.counting(self.path))
            return
        header = self._header
        for text, line in whole_lines(self.path):
            fields = split(self.path, text, line, self._delimiter, rows.columns, exactly=rows.exactly)
            if header and len(fields):
                fields, header = fields.after(1), False
            if len(fields):
                yield from rows.requests(fields)


class _Assembly:
    """The block that is being filled."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._start = 0
        self._distinct = 0
        self._warn = True
        self._parts: list[tuple[np.ndarray | None, ...]] = []

    def add(self, objects: np.ndarray, part: Requests, chosen: slice) -> None:
        others = (None if array is None else array[chosen] for array in (part.sizes, part.operations, part.promised))
        self._parts.append((objects, *others))
        self.count += len(objects)

    def block(self, ids: IdMap) -> Block:
        """The requests added so far, as a block; the next one follows it."""
        objects, sizes, operations, promised = (
            None if any(array is None for array in column) else np.concatenate(column) for column in zip(*self._parts)
        )
        assert objects is not None
        self._distinct = max(self._distinct, int(objects.max()) + 1)
        if sizes is not None and sizes.min() == 0:
            at_least_one(sizes, str(self._path), warn=self._warn)
            self._warn = False
        keys = ids.keys[: self._distinct] if ids.words == 1 else None
        block = Block(objects, self._distinct, sizes, operations, self._path.name, keys, start=self._start, promised=promised)
        self._start += self.count
        self.count, self._parts = 0, []
        return block


def open_trace(
    path: str | os.PathLike[str], *, format: str = "auto", columns: str = "", delimiter: str = "", header: str = "auto", block: int = 4096
) -> TraceFile:
    """The trace file at `path`, with its format detected and its beginning checked.

    - `format`: one of `FORMATS`, or auto: by the ending (.oracleGeneral, .oracleGeneral.bin, .csv, .tsv, .txt, each also with .gz
      or .zst), and for a table without `columns` by its first rows (Tencent's could be anything and must be named);
    - `columns`: what the columns of a CSV are (`time=0,id=1,size=2`, or names of the header: `id=lbn`);
    - `delimiter`: one of , tab ; | space; a comma or a tab is detected if it is empty;
    - `header`: whether the first row names the columns: auto, yes or no;
    - `block`: bytes of a block, for block traces.
    """
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"found {type(path).__name__}; expected the path of a trace file") from None
    length = check_file(file)
    if header not in ("auto", "yes", "no"):
        raise unknown("header", str(header), ("auto", "yes", "no"))
    if not isinstance(block, int) or not 512 <= block <= block_io.MOST_REQUEST_BYTES:
        raise InputError(f"found block={block!r}; expected 512 to 2^30 bytes")
    kind = _format(file, format)
    if kind == "oracleGeneral":
        if columns:
            raise InputError("found columns for a file of records; expected them with csv only", where=str(file))
        plain = file.suffix.lower() not in (".gz", ".zst")
        if plain:
            oracle_general.check_length(file, length)
        return TraceFile(file, kind, length // oracle_general.RECORD.itemsize if plain else None)
    return _open_table(file, kind, columns, delimiter, header, block, found=format != "auto")


def _format(file: Path, format: str) -> str:
    if format != "auto":
        known = {name.lower(): name for name in FORMATS}
        if not isinstance(format, str) or format.lower() not in known:
            raise unknown("trace format", str(format), ("auto", *FORMATS))
        return known[format.lower()]
    name = file.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith((".oraclegeneral", ".oraclegeneral.bin")):
        return "oracleGeneral"
    if name.endswith((".csv", ".tsv")):
        return "csv"
    if name.endswith(".txt"):
        return "text"
    raise InputError(
        "found an ending that does not tell the format; expected .oracleGeneral, .oracleGeneral.bin, .csv, .tsv or .txt, with "
        f"or without .gz or .zst (or name the format: {', '.join(FORMATS)})",
        where=str(file),
    )


def _open_table(file: Path, kind: str, columns: str, delimiter: str, header: str, block: int, *, found: bool) -> TraceFile:
    if columns and kind != "csv":
        raise InputError(f"found columns for format {kind}; expected them with csv only", where=str(file))
    text, line = next(whole_lines(file), (np.empty(0, np.uint8), 1))
    rows = _first_rows(text)
    mark = NO_DELIMITER if kind == "text" else _delimiter(delimiter, rows[0] if rows else "", file)
    sample = [_cells(row, mark) for row in rows]
    split(file, text, line, mark, (0,))
    if not sample:
        raise InputError("found only blank lines; expected at least one request", where=str(file))
    if kind == "csv" and not columns and not found:
        kind = _sniff(sample[1:] or sample)
    second = sample[1] if len(sample) > 1 else None
    roles: dict[str, int] | None = None
    if kind == "csv":
        names, roles = _roles(file, sample[0], second, columns, header)
        has_header = names is not None
    elif kind == "text":
        roles = {"id": 0}
        has_header = header == "yes" or (header == "auto" and second is not None and not is_number(sample[0][0]) and is_number(second[0]))
    else:
        has_header = header == "yes" or (header == "auto" and looks_like_header(sample[0], second, None))
    if roles is not None:
        reader = _table(file, text, line, mark, roles, has_header)
        return TraceFile(file, kind, None, lambda: reader, mark, has_header)
    make: Callable[[], TextFormat] = twitter.Twitter if kind == "twitter" else lambda: block_io.BlockIo(kind, block)
    return TraceFile(file, kind, None, make, mark, has_header)


def _roles(file: Path, first: list[str], second: list[str] | None, columns: str, header: str) -> tuple[list[str] | None, dict[str, int]]:
    """The names in the header, if there is one, and the column of each role."""
    where = str(file)
    if not columns:
        named = header == "yes" or (header == "auto" and looks_like_header(first, second, None))
        names = first if named else None
        return names, guess_roles(names, len(first), where)
    roles = parse_roles(columns, None if header == "no" else first, where)
    by_name = any(not item.partition("=")[2].strip().isdigit() for item in columns.split(","))
    named = header == "yes" or by_name or (header == "auto" and looks_like_header(first, second, roles))
    return (first if named else None), roles


def _table(file: Path, text: np.ndarray, line: int, mark: int, roles: dict[str, int], header: bool) -> Table:
    who = "key" if "key" in roles else "id"
    fields = split(file, text, line, mark, (roles[who],))
    sample = fields.after(1) if header else fields
    return Table(roles, who == "key" or ids_are_text(sample, 0))


def _first_rows(text: np.ndarray) -> list[str]:
    lines = text[: 2**17].tobytes().decode("utf-8", "replace").split("\n")
    return [row.rstrip("\r") for row in lines[: 4 * _SNIFF_ROWS] if row.strip()][:_SNIFF_ROWS]


def _cells(row: str, mark: int) -> list[str]:
    cells = [row] if mark == NO_DELIMITER else row.split(chr(mark))
    return [cell.strip().strip('"') for cell in cells]


def _delimiter(delimiter: str, first: str, file: Path) -> int:
    if delimiter:
        if delimiter not in _DELIMITERS:
            raise InputError(f'found delimiter "{one_line(str(delimiter), 20)}"; expected one of , tab ; | space')
        return _DELIMITERS[delimiter]
    if file.name.lower().removesuffix(".gz").removesuffix(".zst").endswith(".tsv"):
        return _DELIMITERS["tab"]
    return _DELIMITERS["tab"] if first.count("\t") > first.count(",") else _DELIMITERS[","]


def _sniff(rows: list[list[str]]) -> str:
    """The format whose look all `rows` have, or csv."""
    if all(twitter.looks_like(row) for row in rows):
        return "twitter"
    looks = {block_io.looks_like(row) for row in rows}
    return (looks.pop() or "csv") if len(looks) == 1 else "csv"
