"""Histories of real work as schedules, and files that say how a network and its clocks were.

`read_git_log` reads `git log --all --reverse --date=unix --name-status --pretty='commit %H %ad %an' > history.txt`, where an author is
a replica and a commit is a group. `read_inotify` reads one log per replica, made by
`inotifywait -m -r --timefmt %s --format '%T|%w%f|%e' folder`. `read_network` reads a CSV file with the header
`t0,t1,a,b,down,delay_ms,loss,dup`, and `read_clocks` one with `replica,offset_s,drift_ppm`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import Column, read_lines, read_table

from .schedule import Operation, Outage, Schedule, Weather, check_path

_COMMIT = re.compile(r"commit ([0-9a-f]{7,64}) (-?\d+)(?: [+-]\d{4})? (.+)")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, '"': 34}
#: Seconds between the changes of one commit.
_STEP_S = 0.001
#: An empty cell of the last three leaves the network as it was.
_NETWORK = (
    Column("t0", unit="seconds", least=0), Column("t1", unit="seconds"), Column("a", "str"), Column("b", "str"),
    Column("down", "bool", default=False), Column("delay_ms", unit="milliseconds", least=0, default=math.nan),
    Column("loss", least=0, most=1, default=math.nan), Column("dup", least=0, most=1, default=math.nan),
)  # fmt: skip
_CLOCKS = (Column("replica", "str"), Column("offset_s", unit="seconds"), Column("drift_ppm", default=0.0))


def read_git_log(path: str | Path, **world: Any) -> Schedule:
    """Reads a repository's history as a schedule, in seconds from the first commit.

    A commit that is dated earlier than the one before it takes place right after that one.
    """
    where = str(path)
    operations: list[Operation] = []
    head: tuple[float, str, str] | None = None
    changes: list[tuple[str, list[str], int]] = []
    start = last = 0.0

    def flush() -> None:
        nonlocal last
        if head is None or not changes:
            return
        t, author, name = head
        t = max(t - start, last)
        operations.append(Operation(t, author, "begin", group=name))
        for kind, paths, line in changes:
            for operation in _git_change(kind, paths, f"{where}:{line}"):
                t += _STEP_S
                operations.append(Operation(t, author, operation[0], operation[1], operation[2], group=name))
        last = t + _STEP_S
        operations.append(Operation(last, author, "end", group=name))

    for number, line in read_lines(path):
        found = _COMMIT.fullmatch(line)
        if found:
            flush()
            changes = []
            time = _number(found[2], "commit time", f"{where}:{number}")
            start = time if head is None else start
            head = (time, one_line(found[3], 100), found[1])
        elif line:
            kind, *paths = line.split("\t")
            if head is None or not re.fullmatch(r"[AMDT]|[RC]\d{0,3}", kind) or len(paths) != (2 if kind[0] in "RC" else 1):
                raise InputError(
                    f'found "{one_line(line, 60)}"; expected "commit <hash> <unix time> <author>" or a status and its path, by tabs',
                    where=f"{where}:{number}",
                )
            changes.append((kind, paths, number))
    flush()
    return _schedule(operations, where, world)


def _git_change(kind: str, paths: list[str], where: str) -> Iterator[tuple[str, str, str]]:
    names = [_unquoted(path, where) for path in paths]
    for name in names:
        check_path(name, where)
    if kind[0] == "R":
        yield "rename", names[0], names[1]
    elif kind[0] == "D":
        yield "delete", names[0], ""
    if kind[0] in "AMTC" or (kind[0] == "R" and kind != "R100"):
        yield "write", names[-1], ""


def _unquoted(path: str, where: str) -> str:
    """Returns the path that git wrote, in quotation marks with C escapes where it has odd characters."""
    if not (path.startswith('"') and path.endswith('"') and len(path) > 1):
        return path
    out = bytearray()
    for octal, escape, plain in re.findall(r"\\([0-7]{3})|\\(.)|([^\\]+)", path[1:-1]):
        if plain:
            out += plain.encode()
        elif octal:
            out.append(int(octal, 8) & 255)
        elif escape in _ESCAPES:
            out.append(_ESCAPES[escape])
        else:
            raise InputError(f'path: found the escape "\\{one_line(escape)}"; expected one of git\'s', where=where)
    return out.decode("utf-8", "replace")


def read_inotify(logs: Mapping[str, str | Path], roots: Mapping[str, str] | None = None, **world: Any) -> Schedule:
    """Reads the schedule of several watched folders.

    `logs` maps a replica to its log, and `roots` maps it to the folder as inotifywait was given it, "." by default.
    """
    events: list[tuple[float, int, Operation]] = []
    for replica, path in logs.items():
        root = (roots or {}).get(replica, ".").rstrip("/") + "/"
        for t, line, op, name, to in _watched(path, root):
            events.append((t, line, Operation(t, replica, op, name, to)))
    events.sort(key=lambda event: (event[0], event[1]))
    start = events[0][0] if events else 0.0
    operations = [Operation(t - start, o.replica, o.op, o.path, o.to) for t, _, o in events]
    return _schedule(operations, "inotify logs", {"replicas": tuple(logs), **world})


def _watched(path: str | Path, root: str) -> Iterator[tuple[float, int, str, str, str]]:
    moved: tuple[float, int, str] | None = None
    last = -math.inf
    for number, line in read_lines(path):
        if not line:
            continue
        where = f"{path}:{number}"
        stamp, bar, rest = line.partition("|")
        name, second, kinds = rest.rpartition("|")
        if not bar or not second:
            raise InputError(f'found "{one_line(line, 60)}"; expected seconds|path|events', where=where)
        t = _number(stamp, "time", where)
        if t < last:
            raise InputError(f"time: found {t:g} after {last:g}; expected seconds that do not decrease", where=where)
        last = t
        name = name.removeprefix(root).rstrip("/")
        if not name:
            continue
        check_path(name, where)
        events = set(kinds.split(","))
        if moved and "MOVED_TO" not in events:
            yield moved[0], moved[1], "delete", moved[2], ""
            moved = None
        if "ISDIR" in events:
            if events & {"CREATE", "DELETE"}:
                yield t, number, "mkdir" if "CREATE" in events else "rmdir", name, ""
        elif "MOVED_FROM" in events:
            moved = (t, number, name)
        elif "MOVED_TO" in events:
            yield (t, number, "rename", moved[2], name) if moved else (t, number, "write", name, "")
            moved = None
        elif "CLOSE_WRITE" in events:
            yield t, number, "write", name, ""
        elif "DELETE" in events:
            yield t, number, "delete", name, ""
        elif "CLOSE_NOWRITE" in events:
            yield t, number, "read", name, ""
    if moved:
        yield moved[0], moved[1], "delete", moved[2], ""


def read_network(path: str | Path) -> dict[str, tuple[Outage, ...] | tuple[Weather, ...]]:
    """Reads `outages` and `weather` for a Schedule: `Schedule(..., **read_network("network.csv"))`."""
    outages: list[Outage] = []
    weather: list[Weather] = []
    table = read_table(path, _NETWORK, format="csv", refuse_unknown=True, may_be_empty=True)
    columns = (table[column.name].tolist() for column in _NETWORK)
    for row, (t0, t1, a, b, down, *changes) in enumerate(zip(*columns, strict=True)):
        if t0 >= t1:
            raise table.error(row, f"found {t0:g} to {t1:g}; expected seconds that increase")
        if down:
            outages.append(Outage(t0, t1, *((a, b) if a != "*" else (b, a))))
        delay_ms, loss, duplication = (None if math.isnan(value) else value for value in changes)
        if not (delay_ms is loss is duplication is None):
            weather.append(Weather(t0, t1, a, b, None if delay_ms is None else delay_ms / 1000, loss, duplication))
    return {"outages": tuple(outages), "weather": tuple(weather)}


def read_clocks(path: str | Path) -> dict[str, tuple[float, float]]:
    """Reads `clocks` for a Schedule, which maps a replica to (offset in seconds, drift in parts per million)."""
    table = read_table(path, _CLOCKS, format="csv", unique=("replica",), refuse_unknown=True, may_be_empty=True)
    names, offsets, drifts = (table[column.name].tolist() for column in _CLOCKS)
    return dict(zip(names, zip(offsets, drifts, strict=True), strict=True))


def _schedule(operations: list[Operation], where: str, world: dict[str, Any]) -> Schedule:
    found = tuple(dict.fromkeys(op.replica for op in operations))
    return Schedule(replicas=world.pop("replicas", found), operations=tuple(operations), where=where, **world)


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f'{name}: found "{one_line(text, 40)}"; expected a number', where=where)
    return value
