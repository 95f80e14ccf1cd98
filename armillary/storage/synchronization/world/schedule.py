"""Who does what to which file and when, over which links and by which clocks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line, unknown
from armillary.files import Column, read_table

OPS = ("write", "append", "delete", "rename", "mkdir", "rmdir", "read", "begin", "end")
#: The name of the cloud's node in star topologies; no replica may have it.
SERVER = "server"
_ON_PATHS = frozenset(OPS) - {"begin", "end"}
#: Bytes of a write whose size nobody gave, and what stands for a size that a file does not give.
DEFAULT_BYTES, NO_SIZE = 1000, -1
_COLUMNS = (
    Column("t", unit="seconds", not_decreasing=True), Column("replica", "str"), Column("op", "str", choices=OPS),
    Column("path", "str", default="", strip=False), Column("to", "str", default="", strip=False),
    Column("size", "int", unit="bytes", least=0, default=NO_SIZE), Column("content", "str", default="", strip=False),
    Column("group", "str", default=""),
)  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One act of a user at `t` seconds on `replica`, with its `size` in bytes; `group` names the atomic group between its begin and end."""

    t: float
    replica: str
    op: str
    path: str = ""
    to: str = ""
    size: int = DEFAULT_BYTES
    group: str = ""


@dataclass(frozen=True)
class Outage:
    """From `t0` to `t1` seconds nothing passes between `a` and `b` ("*" is everyone), or with `one_way` nothing from `a` to `b`.

    Through a server, an outage of (a, b) cuts a from the server, and one of ("*", b) cuts b.
    """

    t0: float
    t1: float
    a: str
    b: str = "*"
    one_way: bool = False

    def cuts(self, sender: str, receiver: str) -> bool:
        """Returns whether the outage loses messages from `sender` to `receiver`."""
        return self._along(sender, receiver) or (not self.one_way and self._along(receiver, sender))

    def _along(self, x: str, y: str) -> bool:
        return self.a in (x, "*") and (self.b in (y, "*") or (y == SERVER and self.a == x))


@dataclass(frozen=True)
class Weather:
    """A link between `a` and `b` ("*" is everyone) has another delay, loss or duplication from `t0` to `t1` seconds, if not None."""

    t0: float
    t1: float
    a: str = "*"
    b: str = "*"
    delay_s: float | None = None
    loss: float | None = None
    duplication: float | None = None

    def meets(self, sender: str, receiver: str) -> bool:
        """Returns whether it changes messages from `sender` to `receiver`."""
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
        """Returns whether `t` lies in a span, its start included."""
        i = bisect_right(self.starts, t) - 1
        return i >= 0 and t < self.ends[i]

    def touches(self, t0: float, t1: float) -> bool:
        """Returns whether a span has a part between `t0` and `t1`."""
        i = bisect_right(self.starts, t1) - 1
        return i >= 0 and t0 < self.ends[i]

    def begun(self, t: float) -> float:
        """Returns when the span that holds `t` began, or infinity where none does."""
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
    """Operations in time order, and the world they happen in, which are checked when it is made.

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
        self._check_link(self.delay_s, self.loss, self.duplication)
        for what, spans in (("outage", self.outages), ("weather", self.weather)):
            for span in spans:
                if not (math.isfinite(span.t0) and 0 <= span.t0 < span.t1):
                    raise InputError(f"{what}: found {span.t0!r} to {span.t1!r}; expected seconds that increase", where=self.where)
                self._check_known({span.a, span.b} - {"*"})
        for one in self.weather:
            self._check_link(one.delay_s, one.loss, one.duplication)
        self._check_known({*self.clocks, *self.evicts})
        for name, (offset, drift) in self.clocks.items():
            if not (math.isfinite(offset) and math.isfinite(drift) and drift > -1e6):
                raise InputError(f"clock of {name}: found {offset!r}, {drift!r}; expected finite seconds and ppm", where=self.where)
        for name, cold_s in self.evicts.items():
            if not cold_s >= 0:
                raise InputError(f"evicts of {name}: found {cold_s!r}; expected seconds, not negative", where=self.where)
        check_operations(self.operations, self.replicas, lambda n: f"{self.where}: operation {n + 1}", self.where)

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.replicas:
                raise unknown("replica", name, self.replicas, where=self.where)

    def _check_link(self, delay_s: float | None, loss: float | None, duplication: float | None) -> None:
        if delay_s is not None and not (math.isfinite(delay_s) and delay_s >= 0):
            raise InputError(f"delay: found {delay_s!r}; expected seconds, not negative", where=self.where)
        for name, value in (("loss", loss), ("duplication", duplication)):
            if value is not None and not 0.0 <= value <= 1.0:
                raise InputError(f"{name}: found {value!r}; expected a probability from 0 to 1", where=self.where)

    def is_down(self, sender: str, receiver: str, t: float) -> bool:
        """Returns whether a message from `sender` to `receiver` at `t` is lost to an outage."""
        return any(o.t0 <= t < o.t1 and o.cuts(sender, receiver) for o in self.outages)


def check_operations(operations: Iterable[Operation], replicas: Sequence[str], place: Callable[[int], str], where: str) -> None:
    """Raises InputError for the first operation that cannot be; `place(n)` says where operation n, counted from 0, was found."""
    last = 0.0
    open_groups: dict[str, str] = {}
    used: set[str] = set()
    for n, op in enumerate(operations):
        if op.op not in OPS:
            raise unknown("operation", op.op, OPS, where=place(n))
        if op.replica not in replicas:
            raise unknown("replica", op.replica, replicas, where=place(n))
        if not math.isfinite(op.t) or op.t < last:
            raise InputError(f"t: found {op.t!r} after {last!r}; expected seconds that do not decrease", where=place(n))
        last = op.t
        if op.size < 0:
            raise InputError(f"size: found {op.size}; expected bytes, not negative", where=place(n))
        for path in ((op.path,) if op.op in _ON_PATHS else ()) + ((op.to,) if op.op == "rename" else ()):
            if not is_below_root(path):
                check_path(path, place(n))
        opened = open_groups.get(op.replica, "")
        if op.op == "begin":
            if not op.group or opened or op.group in used:
                raise InputError(f'begin of group "{one_line(op.group)}": expected a new name, and no group open here', where=place(n))
            open_groups[op.replica] = op.group
            used.add(op.group)
        elif op.op == "end":
            if open_groups.pop(op.replica, None) != op.group:
                raise InputError(f'end of group "{one_line(op.group)}": expected the group that this replica has open', where=place(n))
        elif op.op != "read" and op.group != opened:
            raise InputError(f'group: found "{one_line(op.group)}"; expected "{opened}", open here', where=place(n))
    for replica, group in open_groups.items():
        raise InputError(f'group "{one_line(group)}" of {replica} has a begin and no end', where=where)


def is_below_root(path: str) -> bool:
    """Returns whether `path` is relative and stays below the root."""
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


def check_path(path: str, where: str) -> None:
    """Raises InputError unless `path` is relative and stays below the root."""
    if not is_below_root(path):
        raise InputError(f'path: found "{one_line(path)}"; expected a relative path below the root', where=where)


def read_schedule(path: str | Path, **world: Any) -> Schedule:
    """Reads a schedule from a CSV file with a header or from JSON lines: `t,replica,op,path[,to][,size][,content][,group]`.

    `content` is the text that a write or an append adds. Its bytes are the size, and a `size` beside it must agree. `world` holds
    further fields of `Schedule`.
    """
    path = Path(path)
    table = read_table(path, _COLUMNS, format="jsonl" if ".jsonl" in path.suffixes else "csv")
    operations = []
    columns = (table[column.name].tolist() for column in _COLUMNS)
    for row, (t, replica, op, name, to, size, content, group) in enumerate(zip(*columns, strict=True)):
        measured = len(content.encode()) if content else DEFAULT_BYTES
        if content and size not in (NO_SIZE, measured):
            raise table.error(row, f"found {size} beside a content of {measured} bytes; expected these, or no size", "size")
        operations.append(Operation(t, replica, op, name, to, measured if size == NO_SIZE else size, group))
    found = tuple(world.pop("replicas", dict.fromkeys(op.replica for op in operations)))
    # Here the lines are known; the schedule itself can only count its operations.
    check_operations(operations, found, lambda n: str(table.error(n, "").where), str(path))
    return Schedule(replicas=found, operations=tuple(operations), where=str(path), **world)


def horizon(operations: Iterable[Operation]) -> float:
    """Returns the time of the last operation in seconds, 0 when there is none."""
    return max((op.t for op in operations), default=0.0)
