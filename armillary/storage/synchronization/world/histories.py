"""Histories of real work as schedules, and files that say how a network and its clocks were.

`read_git_log`: `git log --all --reverse --date=unix --name-status --pretty='commit %H %ad %an' > history.txt`; an author is a replica,
a commit a group. `read_inotify`: one log a replica, `inotifywait -m -r --timefmt %s --format '%T|%w%f|%e' folder`. `read_network`: CSV
with the header `t0,t1,a,b,down,delay_ms,loss,dup` (what is empty stays as it was). `read_clocks`: CSV `replica,offset_s,drift_ppm`.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line

from .schedule import Operation, Outage, Schedule, Weather, check_path

_COMMIT = re.compile(r"commit ([0-9a-f]{7,64}) (-?\d+)(?: [+-]\d{4})? (.+)")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, '"': 34}
#: Seconds between the changes of one commit.
_STEP_S = 0.001


def read_git_log(path: str | Path, **world: Any) -> Schedule:
    """The schedule of a repository's history: seconds from the first commit; a commit earlier than the one before it counts at its time."""
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

    for number, line in enumerate(_lines(path), 1):
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
    """A path as git writes it: in quotation marks with C escapes where it has odd characters."""
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
    """The schedule of several watched folders: replica -> log, and replica -> the folder as inotifywait was given it (default ".")."""
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
    for number, line in enumerate(_lines(path), 1):
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
    """`outages` and `weather` for a Schedule: `Schedule(..., **read_network("network.csv"))`."""
    outages: list[Outage] = []
    weather: list[Weather] = []
    for where, row in _rows(path, ("t0", "t1", "a", "b"), ("down", "delay_ms", "loss", "dup")):
        t0, t1 = (_number(row[name], name, where) for name in ("t0", "t1"))
        if not 0 <= t0 < t1:
            raise InputError(f"found {t0:g} to {t1:g}; expected seconds that increase, from 0", where=where)
        a, b = row["a"], row["b"]
        if not a or not b:
            raise InputError('a, b: found an empty name; expected a replica, or "*" for all', where=where)
        down = row.get("down", "")
        if down not in ("", "0", "1"):
            raise InputError(f'down: found "{one_line(down, 40)}"; expected 1, 0 or nothing', where=where)
        if down == "1":
            outages.append(Outage(t0, t1, *((a, b) if a != "*" else (b, a))))
        delay, loss, dup = (_optional(row.get(name, ""), name, where) for name in ("delay_ms", "loss", "dup"))
        if delay is not None and delay < 0:
            raise InputError(f"delay_ms: found {delay:g}; expected milliseconds, not negative", where=where)
        for name, value in (("loss", loss), ("dup", dup)):
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name}: found {value:g}; expected a probability from 0 to 1", where=where)
        if not (delay is loss is dup is None):
            weather.append(Weather(t0, t1, a, b, None if delay is None else delay / 1000, loss, dup))
    return {"outages": tuple(outages), "weather": tuple(weather)}


def read_clocks(path: str | Path) -> dict[str, tuple[float, float]]:
    """`clocks` for a Schedule: replica -> (offset in seconds, drift in parts per million)."""
    clocks: dict[str, tuple[float, float]] = {}
    for where, row in _rows(path, ("replica", "offset_s"), ("drift_ppm",)):
        name = row["replica"]
        if not name or name in clocks:
            raise InputError(f'replica: found "{one_line(name, 60)}"; expected a name that was not there yet', where=where)
        clocks[name] = (_number(row["offset_s"], "offset_s", where), _optional(row.get("drift_ppm", ""), "drift_ppm", where) or 0.0)
    return clocks


def _schedule(operations: list[Operation], where: str, world: dict[str, Any]) -> Schedule:
    found = tuple(dict.fromkeys(op.replica for op in operations))
    return Schedule(replicas=world.pop("replicas", found), operations=tuple(operations), where=where, **world)


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as UTF-8 text ({one_line(str(error))})", where=str(path)) from None


def _rows(path: str | Path, needed: tuple[str, ...], allowed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    reader = csv.reader(line for line in _lines(path) if line.strip())
    header = [name.strip() for name in next(reader, [])]
    if not set(needed) <= set(header) <= {*needed, *allowed} or len(set(header)) < len(header):
        raise InputError(
            f'header: found "{one_line(",".join(header), 80)}"; expected {",".join(needed)} and any of {",".join(allowed)}',
            where=f"{path}:1",
        )
    for number, row in enumerate(reader, 2):
        if len(row) > len(header):
            raise InputError(f"found {len(row)} columns; expected {len(header)}", where=f"{path}:{number}")
        values = [value.strip() for value in row]
        yield f"{path}:{number}", dict(zip(header, values + [""] * (len(header) - len(row)), strict=True))


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f'{name}: found "{one_line(text, 40)}"; expected a number', where=where)
    return value


def _optional(text: str, name: str, where: str) -> float | None:
    return _number(text, name, where) if text else None
