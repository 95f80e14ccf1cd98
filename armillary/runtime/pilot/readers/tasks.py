"""Task lists in JSON Lines, one object per task.

{"id": "md", "kind": "executable", "command": ["./md"], "nodes": 2, "ranks": 16, "seconds": 90.0, "after": ["dock-0"], "stage": "md"}
{"id": "dock-0", "kind": "function", "function": "docking:score", "args": [0], "seconds": 8.0}
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_json_lines
from armillary.runtime.pilot.workload import EXECUTABLE, FUNCTION, Tasks, Work

KEYS = {
    "id", "kind", "command", "function", "args", "nodes", "ranks", "cores_per_rank", "gpus_per_rank", "seconds", "after", "stage",
}  # fmt: skip
MOST_TASKS, MOST_EDGES, MOST_STAGES = 5_000_000, 20_000_000, 10_000
#: The largest count of anything, and the longest task (30 years), so that no sum overflows.
MOST, MOST_SECONDS = 1 << 20, 1e9


def read_tasks(path: str | Path, *, nodes: int, cores: int, gpus: int) -> Work:
    """The tasks of a file for an allocation; they are only described, and nothing that the file names is executed."""
    numbers: dict[str, int] = {}
    rows: list[tuple[int, int, int, int, float, str]] = []
    after: list[tuple[int, str, int]] = []
    stages: dict[str, None] = {}
    for line, entry in read_json_lines(path, most=MOST_TASKS):
        where = f"{path}:{line}"
        name, row, waits = _task(entry, where)
        if name in numbers:
            raise InputError(f'found the id "{one_line(name, 60)}" twice; expected it once', where=where)
        numbers[name] = len(rows)
        after += [(len(rows), other, line) for other in waits]
        rows.append(row)
        stages[row[5]] = None
        if len(after) > MOST_EDGES or len(stages) > MOST_STAGES:
            raise InputError(f"found more than {MOST_EDGES:,} entries of `after`, or {MOST_STAGES:,} stages", where=where)
    if not rows:
        raise InputError("found no tasks; expected at least one", where=str(path))
    made = Tasks()
    for stage in stages:
        made.name_stage(stage)
    kinds, widths, cores_each, gpus_each, seconds, of_stage = zip(*rows, strict=True)
    made.add_rows(kinds, seconds, widths, cores_each, gpus_each, of_stage)
    later, earlier = np.empty(len(after), np.int64), np.empty(len(after), np.int64)
    for i, (task, other, line) in enumerate(after):
        if other not in numbers:
            raise unknown("task", other, numbers if len(numbers) < 10_000 else [], where=f"{path}:{line}: after")
        later[i], earlier[i] = task, numbers[other]
    made.wait(later, earlier)
    work = made.work(nodes, cores, gpus, list(numbers))
    work.check_order(str(path))
    return work


def _task(entry: dict[str, Any], where: str) -> tuple[str, tuple[int, int, int, int, float, str], list[str]]:
    for key in entry:
        if key not in KEYS:
            raise unknown("key", key, KEYS, where=where)
    name = _name(entry.get("id"), where)
    kind = _kind(entry, where)
    count = {
        key: _whole(entry, key, least, where) for key, least in (("nodes", 1), ("ranks", 1), ("cores_per_rank", 1), ("gpus_per_rank", 0))
    }
    if "ranks" not in entry:
        count["ranks"] = count["nodes"]
    if count["ranks"] % count["nodes"]:
        raise InputError(f"found {count['ranks']} ranks on {count['nodes']} nodes; expected the same number on every node", where=where)
    if kind == FUNCTION and (count["nodes"] > 1 or count["ranks"] > 1):
        raise InputError("found a function of several nodes or ranks; expected one of each", where=where)
    each = count["ranks"] // count["nodes"]
    seconds = entry.get("seconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MOST_SECONDS or not math.isfinite(seconds):
        raise InputError(f"seconds: found {one_line(str(seconds), 40)}; expected a number from 0 to {MOST_SECONDS:g}", where=where)
    waits = entry.get("after", [])
    if not isinstance(waits, list):
        raise InputError("after: expected a list of ids", where=where)
    stage = entry.get("stage", "tasks")
    if not isinstance(stage, str):
        raise InputError("stage: expected a text", where=where)
    row = (kind, count["nodes"], each * count["cores_per_rank"], each * count["gpus_per_rank"], float(seconds), one_line(stage, 60))
    return name, row, [_name(other, f"{where}: after") for other in dict.fromkeys(map(_plain, waits))]


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int) else repr(value)


def _name(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"id: found {one_line(repr(value), 40)}; expected a text or a whole number", where=where)
    return str(value)


def _kind(entry: dict[str, Any], where: str) -> int:
    command, function, said = entry.get("command"), entry.get("function"), entry.get("kind")
    if said not in (None, "executable", "function"):
        raise unknown("kind", str(said), ("executable", "function"), where=where)
    if command is not None and (not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command)):
        raise InputError("command: expected a list of words", where=where)
    if function is not None and (not isinstance(function, str) or function.count(":") != 1):
        raise InputError("function: expected module:name", where=where)
    if (command is None) == (function is None):
        raise InputError(
            f"found {'both a command and a function' if command else 'neither a command nor a function'}; expected one", where=where
        )
    found = EXECUTABLE if function is None else FUNCTION
    if said is not None and found != (EXECUTABLE if said == "executable" else FUNCTION):
        raise InputError(f"kind: found {said} with a {'function' if found else 'command'}", where=where)
    if not isinstance(entry.get("args", []), list):
        raise InputError("args: expected a list", where=where)
    return found


def _whole(entry: dict[str, Any], key: str, least: int, where: str) -> int:
    value = entry.get(key, max(least, 1) if least else 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InputError(f"{key}: found {one_line(str(value), 40)}; expected a whole number from {least} to {MOST:,}", where=where)
    return value
