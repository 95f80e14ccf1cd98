"""Paraver traces, read back as tables of intervals, events and lines; from nsys2prv, from Armillary or from Extrae."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import line_blocks, read_lines

if TYPE_CHECKING:
    import polars

#: Records and bytes of a line that are accepted, unless the caller says otherwise.
RECORDS, LINE_BYTES = 200_000_000, 1 << 20
_HEADER = re.compile(r"#Paraver \((\d\d/\d\d/\d{2,4} at \d\d:\d\d)\):(\d+)(?:_ns)?:(\d+)(\(([\d,]*)\))?:(\d+):(.*)")


@dataclass(frozen=True)
class ParaverTrace:
    """A trace: how long it is (ns), its nodes' CPUs, its tasks' threads, and its records.

    `events` has a row per pair of type and value (cpu, task, thread, time, type, value), and a row per record have `states` (cpu, task,
    thread, start, end, state) and `lines` (sending cpu, task, thread, time, receiving ones, size, tag).
    """

    end_ns: int
    cpus: tuple[int, ...]
    threads: tuple[int, ...]
    events: polars.DataFrame
    states: polars.DataFrame
    lines: polars.DataFrame

    def intervals(self, kind: int) -> polars.DataFrame:
        """Intervals of one type (task, thread, start, end, value): from a record with a value to the thread's next one of that type."""
        import polars as pl

        chosen = self.events.filter(pl.col("type") == kind)
        ordered = chosen.with_columns(pl.col("time").shift(-1).over("task", "thread").alias("end"))
        closed = ordered.filter(pl.col("value") != 0, pl.col("end").is_not_null())
        return closed.select("task", "thread", pl.col("time").alias("start"), "end", "value")


def read_paraver(path: str | Path, *, most: int = RECORDS) -> ParaverTrace:
    """Reads a `.prv`, packed or not."""
    import polars as pl

    where = str(path)
    blocks = line_blocks(path, limit=None, longest=LINE_BYTES)
    header, events, states, lines, count = None, [], [], [], 0
    for block, first in blocks:
        for number, line in enumerate(block.split(b"\n"), first):
            if header is None:
                header = _header(line, where)
                continue
            if not line or line[:1] in (b"c", b"#"):
                continue
            count += 1
            if count > most:
                raise InputError(f"found more than {most:,} records; expected at most {most:,}", where=where)
            fields = _fields(line, where, number)
            if fields[0] == 2 and len(fields) >= 8 and not len(fields) % 2:
                events += [(fields[1], fields[3], fields[4], fields[5], *fields[k : k + 2]) for k in range(6, len(fields), 2)]
            elif fields[0] == 1 and len(fields) == 8:
                states.append((fields[1], *fields[3:8]))
            elif fields[0] == 3 and len(fields) == 15:
                lines.append((fields[1], *fields[3:6], fields[7], *fields[9:12], *fields[13:15]))
            else:
                raise InputError(f'found "{one_line(line.decode("latin-1"), 60)}"; expected a record of Paraver', where=f"{where}:{number}")
    if header is None:
        raise InputError("found an empty file; expected a trace of Paraver", where=where)

    def table(rows: list[tuple[int, ...]], *names: str) -> pl.DataFrame:
        array = np.array(rows, np.int64).reshape(-1, len(names))
        return pl.DataFrame({name: array[:, k] for k, name in enumerate(names)})

    sender = ("cpu", "task", "thread", "time")
    return ParaverTrace(
        *header, table(events, *sender, "type", "value"), table(states, "cpu", "task", "thread", "start", "end", "state"),
        table(lines, *sender, "to_cpu", "to_task", "to_thread", "to_time", "size", "tag"),
    )  # fmt: skip


def _header(line: bytes, where: str) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    found = _HEADER.fullmatch(line.decode("latin-1").strip())
    if found is None:
        raise InputError(f'found "{one_line(line.decode("latin-1"), 60)}"; expected the first line of a Paraver trace', where=f"{where}:1")
    cpus = tuple(int(one) for one in (found[5] or "").split(",") if one)
    threads = tuple(int(one) for one in re.findall(r"(\d+):\d+", found[7].partition(":")[0] + ":" + found[7].partition(":")[2]))
    return int(found[2]), cpus, threads


def _fields(line: bytes, where: str, number: int) -> list[int]:
    try:
        fields = [int(one) for one in line.split(b":")]
    except ValueError:
        fields = []
    if not fields or any(not -(1 << 63) <= one < 1 << 63 for one in fields):
        what = f'found "{one_line(line.decode("latin-1"), 60)}"; expected whole numbers between colons'
        raise InputError(what, where=f"{where}:{number}")
    return fields


def read_meanings(path: str | Path) -> dict[int, dict[int, str]]:
    """The names of values by event type in a `.pcf`; a type without values has none."""
    found: dict[int, dict[int, str]] = {}
    for part in _sections(path):
        types = [int(line.split(None, 2)[1]) for line in part if re.match(r"\d+\s+\d+\s+\S", line)]
        at = part.index("VALUES") if "VALUES" in part else len(part)
        kinds = [int(line.split(None, 2)[1]) for line in part[:at] if re.match(r"\d+\s+\d+\s+\S", line)]
        values = {int(line.split(None, 1)[0]): line.split(None, 1)[1] for line in part[at + 1 :] if re.match(r"\d+\s+\S", line)}
        for kind in kinds if at < len(part) else types:
            found[kind] = values
    return found


def _sections(path: str | Path) -> Iterator[list[str]]:
    part: list[str] = []
    inside = False
    for _, line in read_lines(path):
        if line.strip() == "EVENT_TYPE":
            if inside:
                yield part
            part, inside = [], True
        elif inside and line.strip():
            part.append(line.strip())
    if inside:
        yield part
