"""Reads and writes StarPU's tasks.rec: records of `Key: value` lines, separated by blank lines, with times in ms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError, unknown
from armillary.files import read_text
from armillary.tasks.formats.listing import MOST_FILE_BYTES, MOST_TASKS, Entry, graph_of, number
from armillary.tasks.trace import LINK

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph
    from armillary.tasks.trace import Trace

#: The keys that StarPU writes; those without information on order or time are skipped.
KEYS = (
    "Name", "Model", "JobId", "SubmitOrder", "DependsOn", "Priority", "WorkerId", "MemoryNode", "SubmitTime", "StartTime", "EndTime",
    "GFlop", "Footprint", "Parameters", "Handles", "Modes", "Sizes", "Control", "Tag", "Iteration", "X", "Y", "Z", "File", "Line", "Color",
    "NumaNodes", "MPIRank", "ExecuteOnSpecificWorker", "Workers", "SpecificWorker",
)  # fmt: skip


def from_rec(path: str | Path, *, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of a tasks.rec file; costs are EndTime − StartTime."""
    entries: list[Entry] = []
    record: dict[str, tuple[str, int]] = {}
    for line, text in enumerate([*read_text(path, limit=MOST_FILE_BYTES).splitlines(), ""], 1):
        if text.strip():
            key, colon, value = text.partition(":")
            if not colon:
                raise InputError(f"found {text[:60]!r}; expected Key: value", where=f"{path}:{line}")
            if key not in KEYS:
                raise unknown("key", key, KEYS, where=f"{path}:{line}")
            record[key] = (value.strip(), line)
        elif record:
            entries.append(_entry(record, path, line))
            record = {}
            if len(entries) > max_tasks:
                raise InputError(f"found more than {max_tasks} tasks", where=f"{path}:{line}")
    return graph_of(entries, Path(path).stem, max_tasks)


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
