"""Who does what to which file and when, over which links and by which clocks."""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line, unknown

OPS = ("write", "append", "delete", "rename", "mkdir", "rmdir", "read", "begin", "end")
#: The name of the cloud's node in star topologies; no replica may have it.
SERVER = "server"
_ON_PATHS = frozenset(OPS) - {"begin", "end"}


@dataclass(frozen=True)
class Operation:
    """One act of a user: at `t` seconds, on `replica`; `size` in bytes; `group` names the atomic group between its begin and end."""

    t: float
    replica: str
    op: str
    path: str = ""
    to: str = ""
    size: int = 1000
    group: str = ""


@dataclass(frozen=True)
class Outage:
    """From `t0` to `t1` seconds nothing passes between `a` and `b` ("*": everyone); `one_way`: nothing from `a` to `b` only.

    Through a server, an outage of (a, b) cuts a from the server, and one of ("*", b) cuts b.
    """

    t0: float
    t1: float
    a: str
    b: str = "*"
    one_way: bool = False

    def cuts(self, sender: str, receiver: str) -> bool:
        """Whether messages from `sender` to `receiver` are lost to it."""
        return self._along(sender, receiver) or (not self.one_way and self._along(receiver, sender))

    def _along(self, x: str, y: str) -> bool:
        return self.a in (x, "*") and (self.b in (y, "*") or (y == SERVER and self.a == x))


@dataclass(frozen=True)
class Weather:
    """From `t0` to `t1` seconds a link between `a` and `b` ("*": everyone) has another mean delay, loss or duplication; None: as ever."""

    t0: float
    t1: float
    a: str = "*"
    b: str = "*"
    delay_s: float | None = None
    loss: float | None = None
    duplication: float | None = None

    def meets(self, sender: str, receiver: str) -> bool:
        """Whether it lies on messages from `sender` to `receiver`."""
        return Outage(0.0, 1.0, self.a, self.b).cuts(sender, receiver)


class Spans:
    """Spans of time, joined where they meet; the last may be open."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        for t0, t1 in sorted(spans):
            if self.ends and t0 <= self.ends[-1]:
                self.ends[-1] = max(t1, self.ends[-1])
            else:
                self.starts.append(t0)
                self.ends.append(t1)

    def holds(self, t: float) -> bool:
        """Whether `t` lies in one, its start included."""
        i = bisect_right(self.starts, t) - 1
        return i >= 0 and t < self.ends[i]

    def touches(self, t0: float, t1: float) -> bool:
        """Whether one has a part between `t0` and `t1`."""
        i = bisect_right(self.starts, t1) - 1
        return i >= 0 and t0 < self.ends[i]

    def begun(self, t: float) -> float:
        """When the span that holds `t` began; infinite where none does."""
        i = bisect_right(self.starts, t) - 1
        return self.starts[i] if i >= 0 and t < self.ends[i] else math.inf

    def open(self, t: float) -> None:
        """Begins a span now, unless one is open."""
        if not self.holds(t):
            self.starts.append(t)
            self.ends.append(math.inf)

    def close(self, t: float) -> None:
        """Ends the open span now."""
        if self.ends and self.ends[-1] > t:
            self.ends[-1] = t


@dataclass(frozen=True)
class Schedule:
    """Operations in time order, and the world they happen in; checked when made.

    `delay_s` is the mean of an exponential one-way delay (a tenth of it is the least), `loss` and `duplication` are probabilities of a
    message (`weather` changes them for a while on a link), `clocks` gives (offset in seconds, drift in parts per million) of a replica,
    `stuck` are paths that no message gets across, `ring` leaves protocols without a server only the links between neighbours (the last
    and the first are), and `evicts` gives the seconds after which a replica drops contents that nobody used
    there and that are known to be elsewhere.
    """

    replicas: tuple[str, ...]
    operations: tuple[Operation, ...]
    outages: tuple[Outage, ...] = ()
    weather: tuple[Weather, ...] = ()
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    delay_s: float = 0.05
    loss: float = 0.0
    duplication: float = 0.0
    stuck: frozenset[str] = frozenset()
    ring: bool = False
    evicts: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    where: str = "schedule"

    def __post_init__(self) -> None:
        if len(self.replicas) < 2 or len(set(self.replicas)) != len(self.replicas) or SERVER in self.replicas:
            raise InputError(
                f'replicas: found {list(self.replicas)}; expected two or more names, none of them "{SERVER}"', where=self.where
            )
        if not (math.isfinite(self.delay_s) and self.delay_s >= 0):
            raise InputError(f"delay: found {self.delay_s!r}; expected seconds, not negative", where=self.where)
        for name, value in (("loss", self.loss), ("duplication", self.duplication)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name}: found {value!r}; expected a probability from 0 to 1", where=self.where)
        self._check_outages()
        self._check_operations()

    def _check_outages(self) -> None:
        for outage in self.outages:
            if not (math.isfinite(outage.t0) and 0 <= outage.t0 < outage.t1):
                raise InputError(f"outage: found {outage.t0!r} to {outage.t1!r}; expected seconds that increase", where=self.where)
            for name in (outage.a, outage.b):
                if name != "*" and name not in self.replicas:
                    raise unknown("replica", name, self.replicas, where=self.where)
        for one in self.weather:
            if not (math.isfinite(one.t0) and 0 <= one.t0 < one.t1):
                raise InputError(f"weather: found {one.t0!r} to {one.t1!r}; expected seconds that increase", where=self.where)
            for name in {one.a, one.b} - {"*"}:
                if name not in self.replicas:
                    raise unknown("replica", name, self.replicas, where=self.where)
            if one.delay_s is not None and not (math.isfinite(one.delay_s) and one.delay_s >= 0):
                raise InputError(f"delay: found {one.delay_s!r}; expected seconds, not negative", where=self.where)
            for what, value in (("loss", one.loss), ("duplication", one.duplication)):
                if value is not None and not 0.0 <= value <= 1.0:
                    raise InputError(f"{what}: found {value!r}; expected a probability from 0 to 1", where=self.where)
        for name, (offset, drift) in self.clocks.items():
            if name not in self.replicas:
                raise unknown("replica", name, self.replicas, where=self.where)
            if not (math.isfinite(offset) and math.isfinite(drift) and drift > -1e6):
                raise InputError(f"clock of {name}: found {offset!r}, {drift!r}; expected finite seconds and ppm", where=self.where)

        for name, cold_s in self.evicts.items():
            if name not in self.replicas:
                raise unknown("replica", name, self.replicas, where=self.where)
            if not cold_s >= 0:
                raise InputError(f"evicts of {name}: found {cold_s!r}; expected seconds, not negative", where=self.where)

    def _check_operations(self) -> None:
        last = 0.0
        open_groups: dict[str, str] = {}
        used: set[str] = set()
        for line, op in enumerate(self.operations, 1):
            where = f"{self.where}:{line}"
            if op.op not in OPS:
                raise unknown("operation", op.op, OPS, where=where)
            if op.replica not in self.replicas:
                raise unknown("replica", op.replica, self.replicas, where=where)
            if not math.isfinite(op.t) or op.t < last:
                raise InputError(f"t: found {op.t!r} after {last!r}; expected seconds that do not decrease", where=where)
            last = op.t
            if op.size < 0:
                raise InputError(f"size: found {op.size}; expected bytes, not negative", where=where)
            if op.op in _ON_PATHS:
                check_path(op.path, where)
            if op.op == "rename":
                check_path(op.to, where)
            if op.op == "begin":
                if not op.group or op.replica in open_groups or op.group in used:
                    raise InputError(f'begin of group "{one_line(op.group)}": expected a new name, and no group open here', where=where)
                open_groups[op.replica] = op.group
                used.add(op.group)
            elif op.op == "end":
                if open_groups.pop(op.replica, None) != op.group:
                    raise InputError(f'end of group "{one_line(op.group)}": expected the group that this replica has open', where=where)
            elif op.op != "read" and op.group != open_groups.get(op.replica, ""):
                raise InputError(
                    f'group: found "{one_line(op.group)}"; expected "{open_groups.get(op.replica, "")}", open here', where=where
                )
        for replica, group in open_groups.items():
            raise InputError(f'group "{one_line(group)}" of {replica} has a begin and no end', where=self.where)

    def is_down(self, sender: str, receiver: str, t: float) -> bool:
        """Whether a message from `sender` to `receiver` at `t` is lost to an outage."""
        return any(o.t0 <= t < o.t1 and o.cuts(sender, receiver) for o in self.outages)


def check_path(path: str, where: str) -> None:
    """Raises InputError unless `path` is relative and stays below the root."""
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InputError(f'path: found "{one_line(path)}"; expected a relative path below the root', where=where)


def read_schedule(path: str | Path, **world: Any) -> Schedule:
    """A schedule from a CSV with a header or from JSON lines: `t,replica,op,path[,to][,size][,content][,group]`.

    `content` is the text that a write or an append adds: its bytes are the size, and a `size` beside it must agree. `world` as for
    `Schedule`.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as UTF-8 text ({one_line(str(error))})", where=str(path)) from None
    rows = _json_rows(path, text) if path.suffix == ".jsonl" else list(csv.DictReader(text.splitlines()))
    operations = [_operation(row, f"{path}:{line}") for line, row in enumerate(rows, 1 if path.suffix == ".jsonl" else 2)]
    found = tuple(dict.fromkeys(op.replica for op in operations))
    return Schedule(replicas=world.pop("replicas", found), operations=tuple(operations), where=str(path), **world)


def _json_rows(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for line, one in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(one)
        except (json.JSONDecodeError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f'found "{one_line(one, 60)}"; expected a JSON object', where=f"{path}:{line}")
        rows.append(row)
    return rows


def _operation(row: Mapping[str, Any], where: str) -> Operation:
    def text(name: str) -> str:
        return str(row.get(name) or "")

    content = row.get("content") or None
    try:
        given = row.get("size")
        measured = 1000 if content is None else len(str(content).encode("utf-8", "surrogatepass"))
        t, size = float(row["t"]), measured if given in (None, "") else int(given)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"found t={row.get('t')!r}, size={row.get('size')!r}; expected seconds and whole bytes", where=where) from None
    if content is not None and size != measured:
        raise InputError(f"size: found {size} beside a content of {measured} bytes; expected these, or no size", where=where)
    return Operation(t, text("replica"), text("op"), text("path"), text("to"), size, text("group"))


def horizon(operations: Iterable[Operation]) -> float:
    """The time of the last operation, seconds; 0 when there is none."""
    return max((op.t for op in operations), default=0.0)
