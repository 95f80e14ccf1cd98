"""Reads the traced requests in the text of `darshan-dxt-parser`.

Lines that begin with `# DXT,` name the file and the rank of the rows that follow. A row holds module, rank, operation, segment, offset,
length, start and end, separated by blanks; newer versions add the storage targets in brackets and the thread.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from armillary import memory
from armillary.errors import InputError, one_line

from .log import MOST_TIME, Segments
from .modules import TRACED

_HEADER = re.compile(r"# DXT, file_id: (\d{1,20}), file_name: ?(.*)")
_ROW = (
    r"^ *X_(POSIX|MPIIO) +(-?\d+) +(write|read) +(\d+) +(-?\d+) +(-?\d+) +(-?[0-9.eE+]+) +(-?[0-9.eE+]+)(?: +(?:\[.*\] *)*(?:\S+)?)? *\r?$"
)
#: Bytes of one request in memory.
_BYTES = 66
_NAMES = ("module", "rank", "operation", "segment", "offset", "length", "start", "end")


class Traced:
    """What was read so far."""

    def __init__(self, path: str, most: int) -> None:
        self.path, self.most = path, most
        self.names: dict[int, str] = {}
        self._file = -1
        #: Lines at which another file begins, with its number, within the block that is being read.
        self._changes: list[tuple[int, int]] = []
        self._parts: list[tuple[Any, ...]] = []
        self._count = 0

    def header(self, text: str, line: int) -> None:
        """A line that begins with `# DXT,`."""
        match = _HEADER.match(text)
        if match:
            number = int(match[1])
            if number >= 1 << 64:
                raise InputError(f"file_id: found {match[1]}; expected a whole number of 64 bits", where=f"{self.path}:{line}")
            self.names.setdefault(number, match[2])
            self._changes.append((line, number))

    def rows(self, block: bytes, data: Any, begins: Any, ends: Any, lines: Any, comments: Any, first: int) -> None:
        """The rows of a block; `lines` are their numbers within it."""
        import polars as pl

        if not len(lines):
            return
        self._count += len(lines)
        if self._count > self.most:
            raise InputError(f"found more than {self.most:,} traced requests; expected at most as many", where=self.path)
        memory.require(2 * _BYTES * self._count, "the traced requests", where=self.path)
        texts = pl.Series([block[b:e].decode("utf-8", "replace") for b, e in zip(begins[lines].tolist(), ends[lines].tolist())])
        groups = "".join(f"(?P<{name}>" if part == "(" else part for part, name in _named(_ROW))
        found = texts.str.extract_groups(groups).struct.unnest()
        changes = np.array([line for line, _ in self._changes], np.int64)
        files = np.array([self._file if self._file >= 0 else 0, *(number for _, number in self._changes)], np.uint64)
        which = np.searchsorted(changes, first + lines, side="right")
        if self._file < 0 and len(which) and which[0] == 0:
            raise InputError(
                "found a traced request before any file; expected a line with file_id", where=f"{self.path}:{first + int(lines[0])}"
            )
        numbers = found.select(
            pl.col("rank", "offset", "length").cast(pl.Int64, strict=False), pl.col("start", "end").cast(pl.Float64, strict=False)
        )
        late = ~(pl.col("start", "end").abs() <= MOST_TIME)
        # Old logs do not know the offsets of MPI-IO requests and write -1.
        wrong = pl.any_horizontal(pl.all().is_null(), pl.col("length") < 0, pl.col("offset") < -1, late)
        bad = numbers.select(wrong.fill_null(True)).to_series() | found["module"].is_null()
        bad |= (numbers["offset"] < 0).fill_null(True) & (found["module"] == "POSIX").fill_null(True)
        if bad.any():
            at = int(bad.arg_max() or 0)
            expected = "a traced request (module, rank, operation, segment, offset, length, start, end)"
            raise InputError(f'found "{one_line(texts[at], 60)}"; expected {expected}', where=f"{self.path}:{first + int(lines[at])}")
        self._parts.append((
            (found["module"] == "MPIIO").to_numpy(), files[which], numbers["rank"].to_numpy(), (found["operation"] == "write").to_numpy(),
            *(numbers[name].to_numpy() for name in ("offset", "length", "start", "end")), first + lines,
        ))  # fmt: skip

    def end_block(self, _: int) -> None:
        """What follows belongs to the last file that was named."""
        if self._changes:
            self._file = self._changes[-1][1]
            self._changes = []

    def segments(self, processes: int) -> dict[str, Segments]:
        """All requests by module."""
        if not self._parts:
            return {}
        collective, ids, ranks, wrote, offset, length, start, end, lines = (np.concatenate(part) for part in zip(*self._parts))
        outside = np.flatnonzero((ranks < -1) | (ranks >= processes))
        if len(outside):
            where = f"{self.path}:{int(lines[outside[0]])}"
            raise InputError(f"found the rank {int(ranks[outside[0]])} of {processes} processes", where=where)
        made = {}
        for name, mine in zip(TRACED, (~collective, collective)):
            if mine.any():
                columns = (column[mine] for column in (ids, ranks, wrote, offset, length, start, end))
                made[name] = Segments(name, *columns)
        return made


def _named(pattern: str) -> list[tuple[str, str]]:
    """The parts of a pattern, with the name of every group that is kept."""
    names = iter(_NAMES)
    return [(part, next(names, "") if part == "(" else "") for part in re.split(r"((?<!\\)\((?!\?))", pattern)]
