"""Reads and writes StarPU's tasks.rec: records of `Key: value` lines, separated by blank lines, with times in ms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_text
from armillary.tasks.formats.listing import MOST_FILE_BYTES, MOST_TASKS, Entry, graph_of, number
from armillary.tasks.trace import COLUMNS, LINK, Trace

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph

#: The keys that StarPU writes; those without information on order or time are skipped, as are newer ones.
KEYS = (
    "Name", "Model", "JobId", "SubmitOrder", "DependsOn", "Priority", "WorkerId", "MemoryNode", "SubmitTime", "StartTime", "EndTime",
    "GFlop", "Footprint", "Parameters", "Handles", "Modes", "Sizes", "Control", "Tag", "Iteration", "X", "Y", "Z", "File", "Line", "Color",
    "NumaNodes", "MPIRank", "ExecuteOnSpecificWorker", "Workers", "SpecificWorker", "DepLabels",
)  # fmt: skip
_FOLDED = {key.casefold() for key in KEYS}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_ ]*")
#: A worker's number, nodes, and milliseconds whose nanoseconds fit 64 bits.
_MOST_WORKER, _MOST_MS = 1 << 20, 1e12

_Record = dict[str, tuple[str, int]]


def from_rec(path: str | Path, *, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of a tasks.rec file; costs are EndTime − StartTime."""
    entries: list[Entry] = []
    for record, line in _records(path):
        if "Control" in record and "JobId" not in record:
            continue
        entries.append(_entry(record, path, line))
        if len(entries) > max_tasks:
            raise InputError(f"found more than {max_tasks} tasks", where=f"{path}:{line}")
    return graph_of(entries, Path(path).stem, max_tasks)


def _records(path: str | Path) -> Iterator[tuple[_Record, int]]:
    """The records, each with the line after it. Keys that StarPU does not write today are skipped, unless they only differ in case."""
    record: _Record = {}
    for line, text in enumerate([*read_text(path, limit=MOST_FILE_BYTES).splitlines(), ""], 1):
        if text.strip():
            key, colon, value = text.partition(":")
            if not colon or not _KEY.fullmatch(key):
                raise InputError(f"found {text[:60]!r}; expected Key: value", where=f"{path}:{line}")
            if key not in KEYS and key.casefold() in _FOLDED:
                raise unknown("key", key, KEYS, where=f"{path}:{line}")
            record[key] = (value.strip(), line)
        elif record:
            yield record, line
            record = {}


@dataclass(frozen=True)
class RecTrace:
    """The tasks of a tasks.rec file that ran. `workers` are the names of the workers, with their rank where there are several; `flops` and
    `bytes` are those of each row, NaN where the file does not say them.
    """

    trace: Trace
    workers: tuple[str, ...]
    flops: np.ndarray
    bytes: np.ndarray


def trace_from_rec(path: str | Path, *, max_tasks: int = MOST_TASKS) -> RecTrace:
    """The trace of a tasks.rec file. A task's name is its Model, or else its Name.

    StarPU leaves out a time of 0. Records of `Control`, and tasks that no worker ran or that did not end, are not in the trace.
    """
    rows: list[tuple[int, ...]] = []
    keys: list[str] = []
    names: list[str] = []
    places: list[tuple[int, int]] = []
    work: list[tuple[float, float]] = []
    for record, line in _records(path):
        if "Control" in record or "EndTime" not in record or "WorkerId" not in record:
            continue
        if "JobId" not in record:
            raise InputError("the record has no JobId", where=f"{path}:{line - 1}")
        if len(rows) >= max_tasks:
            raise InputError(f"found more than {max_tasks} tasks", where=f"{path}:{line}")
        submitted, started, ended = (_ns(record, key, path) for key in ("SubmitTime", "StartTime", "EndTime"))
        if ended < started:
            raise InputError(f"EndTime {ended / 1e6} is before StartTime {started / 1e6}", where=f"{path}:{record['EndTime'][1]}")
        places.append((_whole(record, "MPIRank", path), _whole(record, "WorkerId", path)))
        row = dict.fromkeys(COLUMNS, 0)
        row |= {"task": len(rows), "attempt": 1, "cores": 1, "submitted": min(submitted, started), "ready": min(submitted, started)}
        rows.append(tuple({**row, "started": started, "body_ended": ended, "ended": ended}[column] for column in COLUMNS))
        keys.append(record["JobId"][0])
        names.append(one_line(record.get("Model", record.get("Name", ("task", 0)))[0] or "task", 200))
        work.append((_gflop(record, path) * 1e9, _sizes(record, path)))
    if not rows:
        raise InputError("found no task that ran; expected WorkerId and EndTime", where=str(path))
    known = sorted(set(places))
    several = len({rank for rank, _ in known}) > 1
    number = {place: i for i, place in enumerate(known)}
    table = np.array(rows, np.int64)
    table[:, COLUMNS.index("worker")] = [number[place] for place in places]
    table.flags.writeable = False
    workers = tuple(f"{rank}/{worker}" if several else str(worker) for rank, worker in known)
    amounts = np.array(work)
    return RecTrace(Trace(table, keys, names, workers=len(known)), workers, amounts[:, 0], amounts[:, 1])


def _ns(record: _Record, key: str, path: str | Path) -> int:
    if key not in record:
        return 0
    text, line = record[key]
    return round(number(text, f"{path}:{line}: {key}", _MOST_MS) * 1e6)


def _whole(record: _Record, key: str, path: str | Path) -> int:
    text, line = record.get(key, ("0", 0))
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) < _MOST_WORKER):
        raise InputError(f"{key}: found {one_line(text, 40)!r}; expected a whole number below {_MOST_WORKER:,}", where=f"{path}:{line}")
    return int(text)


def _gflop(record: _Record, path: str | Path) -> float:
    if "GFlop" not in record:
        return np.nan
    text, line = record["GFlop"]
    return number(text, f"{path}:{line}: GFlop", 1e15)


def _sizes(record: _Record, path: str | Path) -> float:
    if "Sizes" not in record:
        return np.nan
    text, line = record["Sizes"]
    return sum(number(word, f"{path}:{line}: Sizes", 1e18) for word in text.split())


def _entry(record: dict[str, tuple[str, int]], path: str | Path, line: int) -> Entry:
    if "JobId" not in record:
        raise InputError("the record has no JobId", where=f"{path}:{line - 1}")
    key, at = record["JobId"]
    where = f"{path}:{at}"
    entry = Entry(key, record.get("Name", ("task", at))[0], where, record.get("DependsOn", ("", at))[0].split())
    if "StartTime" in record and "EndTime" in record:
        times = [number(record[k][0], f"{path}:{record[k][1]}: {k}") for k in ("StartTime", "EndTime")]
        if times[1] < times[0]:
            raise InputError(f"EndTime {times[1]} is before StartTime {times[0]}", where=where)
        entry.seconds = (times[1] - times[0]) / 1e3
    return entry


def write_rec(trace: Trace, graph: Graph, path: str | Path) -> None:
    """Writes the rows of a trace as records."""
    with Path(path).open("w", encoding="utf-8") as file:
        for row in trace.rows:
            task, worker, kind = graph.tasks[row[0]], row[1], row[3]
            if kind == LINK or worker < 0:
                continue
            file.write(f"Name: {task.name}\nJobId: {task.id}\n")
            if task.before:
                file.write(f"DependsOn: {' '.join(map(str, task.before))}\n")
            file.write(
                f"WorkerId: {worker}\nSubmitTime: {row[7] / 1e6:.6f}\nStartTime: {row[9] / 1e6:.6f}\nEndTime: {row[11] / 1e6:.6f}\n\n"
            )
