"""What a synchronisation tool did to people's work, found in a log of what they did and what it showed.

The log is JSON lines in the order of time, each an object with `t` (seconds), `replica`, `event` and `path`:

- a user's acts: `write` and `append` (with `content`, any text that names the new content, such as its hash; and `group`, if it belongs
  to one), `delete`, `rename` (with `to`), `read`, and `end` of a `group`;
- the tool's: `put`, after which the replica shows `contents` (a list of such names, or an empty one) under `path`. A content that the tool
  made itself says `from` which contents.

What a replica shows follows from its lines, so the auditor knows what a user had in view of each act. What is shown after the last line
is the outcome. `record` writes such a log from a simulated run.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_json_lines

from .protocol import Act, Content, Shown, SyncProtocol
from .schedule import Operation, Schedule, check_path
from .simulation import Outcome, World
from .truth import Truth

if TYPE_CHECKING:
    import polars as pl

EVENTS = ("write", "append", "delete", "rename", "read", "end", "put")
COLUMNS = ("finding", "t", "replica", "path", "content", "group", "line")


@dataclass(frozen=True)
class Finding:
    """One thing that went wrong: "lost update", "resurrection" or "torn group"; `line` is that of the write, or of the moment."""

    finding: str
    t: float
    replica: str
    path: str
    content: str
    group: str
    line: int


def audit(log: str | Path) -> pl.DataFrame:
    """Finds lost updates, resurrections and torn groups in a log, one row each: finding, t, replica, path, content, group, line."""
    import polars as pl

    findings = _Audit(str(log)).findings(read_json_lines(log))
    schema = {"finding": pl.String, "t": pl.Float64, "replica": pl.String, "path": pl.String, "content": pl.String, "group": pl.String,
              "line": pl.Int64}  # fmt: skip
    return pl.DataFrame([[getattr(f, name) for name in COLUMNS] for f in findings], schema=schema, orient="row")


class _Audit:
    """Replays the log, to know what each replica shows and the causal past of each act."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.truth = Truth()
        #: For each replica and path the contents shown; each content's lines, and the operations that made it.
        self.shown: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.lines: dict[str, tuple[int, ...]] = {}
        #: The renames that brought a content to a path.
        self.moves: dict[tuple[str, str], tuple[int, ...]] = {}
        self.line_of: dict[int, int] = {}
        self.name_of: dict[int, str] = {}
        self.deleted: dict[tuple[str, str], tuple[int, ...]] = {}
        self.found: list[Finding] = []
        #: (replica, group) found torn, and seen whole; replicas that the tool changed since the last moment.
        self.torn: set[tuple[str, str]] = set()
        self.whole: set[tuple[str, str]] = set()
        self.changed: set[str] = set()

    def findings(self, events: Iterator[tuple[int, Mapping[str, Any]]]) -> list[Finding]:
        last, line = 0.0, 0
        for line, row in events:
            where = f"{self.where}:{line}"
            t = _seconds(row.get("t"), where)
            if t < last:
                raise InputError(f"t: found {t!r} after {last!r}; expected seconds that do not decrease", where=where)
            if t > last:
                self._look_for_torn_groups(last, line)
            last = t
            self._take(t, row, line, where)
        self._look_for_torn_groups(last, line, all_of_them=True)
        self._look_at_the_end()
        return sorted(self.found, key=lambda f: (f.t, f.line))

    def _take(self, t: float, row: Mapping[str, Any], line: int, where: str) -> None:
        event, replica, group = (_text(row, name, where, name != "group") for name in ("event", "replica", "group"))
        if event not in EVENTS:
            raise unknown("event", event, EVENTS, where=where)
        if event == "end":
            self.truth.ended(group)
            return
        path = _text(row, "path", where)
        check_path(path, where)
        here = self.shown[replica]
        if event == "put":
            here[path] = self._contents(row, t, replica, path, line, where)
            self.changed.add(replica)
        elif event != "read":
            self._act(Operation(t, replica, event, path, _text(row, "to", where, event == "rename"), 1, group), row, line, where)

    def _contents(self, row: Mapping[str, Any], t: float, replica: str, path: str, line: int, where: str) -> list[str]:
        names, made_from = row.get("contents"), row.get("from", [])
        for value in (names, made_from):
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise InputError(f"contents, from: found {one_line(repr(value), 60)}; expected a list of names", where=where)
        for name in names:  # type: ignore[union-attr]
            if name not in self.lines:
                parts = [n for other in made_from for n in self.lines.get(other, ())]
                self.lines[name] = tuple(sorted(set(parts))) or self._from_before(name, t, replica, path, line)
        return list(names)  # type: ignore[arg-type]

    def _from_before(self, name: str, t: float, replica: str, path: str, line: int) -> tuple[int, ...]:
        """Takes a content that nobody in the log wrote for one from before the log, a write that saw nothing."""
        n = line
        self.truth.happened(Act(n, Operation(t, replica, "write", path)), ())
        self.line_of[n], self.name_of[n] = line, name
        return (n,)

    def _act(self, op: Operation, row: Mapping[str, Any], line: int, where: str) -> None:
        n, here = line, self.shown[op.replica]
        seen = [name for name in here.get(op.path, ()) if name in self.lines]
        shown = [Shown((*self.lines[name], *self.moves.get((name, op.path), ())), Content(self.lines[name], 1)) for name in seen]
        gone = self.deleted.get((op.replica, op.path))
        self.truth.happened(Act(n, op), [*shown, *([Shown(gone, None)] if gone and not seen else [])])
        self.line_of[n] = line
        if op.op == "rename":
            check_path(op.to, where)
            here[op.to] = here.pop(op.path, [])
            for name in seen:
                self.moves[name, op.to] = (*self.moves.get((name, op.path), ()), n)
            return
        if op.op == "delete":
            here.pop(op.path, None)
            self.deleted[op.replica, op.path] = (n,)
            return
        name = _text(row, "content", where)
        before = self.lines[seen[0]] if op.op == "append" and seen else ()
        if name not in self.lines:
            self.lines[name] = (*before, n)
        else:
            # The same content once more stands for both writes.
            self.lines[name] = (*self.lines[name], n)
        self.name_of[n] = name
        here[op.path] = [name]

    def _trees(self) -> dict[str, dict[str, tuple[Content, ...]]]:
        return {
            replica: {path: tuple(Content(self.lines[name], 1) for name in names) for path, names in tree.items() if names}
            for replica, tree in self.shown.items()
        }

    def _look_for_torn_groups(self, t: float, line: int, *, all_of_them: bool = False) -> None:
        """Asks at replicas that the tool changed since the last moment, for groups not seen whole there; at the end, for all."""
        groups = self.truth.groups
        for replica in sorted(self.shown) if all_of_them else sorted(self.changed):
            waiting = list(groups) if all_of_them else [g for g in groups if (replica, g) not in self.whole]
            lines: set[int] | None = None
            for group in waiting:
                live = self.truth._living(group)
                if self.truth.acts[groups[group][0]].operation.replica == replica or (replica, group) in self.torn or not live:
                    continue
                if lines is None:
                    lines = {n for names in self.shown[replica].values() for name in names for n in self.lines[name]}
                if self.truth._is_torn(group, live, lines):
                    self.torn.add((replica, group))
                    self.found.append(self._finding("torn group", next(n for n in live if n in lines), t, replica, line, group))
                elif lines.issuperset(live):
                    self.whole.add((replica, group))
        self.changed.clear()

    def _look_at_the_end(self) -> None:
        trees = self._trees()
        for n in self.truth.lost(trees.values()):
            op = self.truth.acts[n].operation
            self.found.append(self._finding("lost update", n, op.t, op.replica, self.line_of[n], op.group))
        for lines in self.truth.revenants(trees.values()):
            where = [(r, p) for r, tree in trees.items() for p, contents in tree.items() if any(c.lines == lines for c in contents)]
            n = max(lines)
            self.found.append(
                Finding("resurrection", self.truth.acts[n].operation.t, *where[0], self.name_of.get(n, ""), "", self.line_of[n])
            )

    def _finding(self, what: str, n: int, t: float, replica: str, line: int, group: str) -> Finding:
        return Finding(what, t, replica, self.truth.acts[n].operation.path, self.name_of.get(n, ""), group, line)


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"t: found {one_line(repr(value), 40)}; expected seconds", where=where)
    return float(value)


def _text(row: Mapping[str, Any], name: str, where: str, needed: bool = True) -> str:
    value = row.get(name, "")
    if not isinstance(value, str) or (needed and not value):
        raise InputError(f"{name}: found {one_line(repr(value), 60)}; expected text", where=where)
    return value


def record(schedule: Schedule, protocol: SyncProtocol, path: str | Path) -> Outcome:
    """Simulates, and writes the log of it for `audit`; each event compares all trees, so it is for small schedules."""
    writer = _Writer()
    world = World(schedule, protocol, writer.step)
    outcome = world.run()
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in writer.rows), encoding="utf-8")
    return outcome


class _Writer:
    """Writes what users did since the last event, then what each replica shows besides."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.shown: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.names: dict[int, str] = {}
        self.acts = self.ended = 0

    def step(self, world: World) -> None:
        t = world.sim.now
        trees = {
            name: {path: [_name(c.lines) for c in contents] for path, contents in world.nodes[name].tree().items()}
            for name in world.schedule.replicas
        }
        numbers = list(world.truth.acts)
        for n in numbers[self.acts :]:
            self._did(world.truth.acts[n], t, trees)
        self.acts = len(numbers)
        ended = [op for op in world.schedule.operations[: world.done] if op.op == "end"]
        for op in ended[self.ended :]:
            self.rows.append({"t": t, "replica": op.replica, "event": "end", "group": op.group})
        self.ended = len(ended)
        for replica, tree in trees.items():
            before = self.shown[replica]
            for path in sorted(tree.keys() | before.keys()):
                now = tree.get(path, [])
                if now != before.get(path, []):
                    made = set(now).difference(self.names.values())
                    made_from = sorted({self.names[int(line)] for name in made for line in name[1:].split("-")})
                    self.rows.append({"t": t, "replica": replica, "event": "put", "path": path, "contents": now, "from": made_from})
            self.shown[replica] = dict(tree)

    def _did(self, act: Act, t: float, trees: Mapping[str, Mapping[str, list[str]]]) -> None:
        op = act.operation
        row: dict[str, Any] = {"t": t, "replica": op.replica, "event": op.op, "path": op.path}
        here = self.shown[op.replica]
        if op.op == "rename":
            row["to"] = op.to
            here[op.to] = here.pop(op.path, [])
        elif op.op == "delete":
            here.pop(op.path, None)
        else:
            row["content"] = self.names[act.number] = next(iter(trees[op.replica].get(op.path, [f"c{act.number}"])))
            here[op.path] = [row["content"]]
        self.rows.append(row | ({"group": op.group} if op.group else {}))


def _name(lines: tuple[int, ...]) -> str:
    return "c" + "-".join(map(str, lines))
