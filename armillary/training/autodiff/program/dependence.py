"""Whether a value is still in memory when the reverse pass wants it.

A read is *intact* if nothing that runs after it writes to the same element. Both are affine in loop variables, so the question is whether a
system of integer inequalities has a solution: the bounds of both loop nests, equal indices, and "later" in the order of execution, one
system for each loop that may carry the write. Fourier-Motzkin elimination with integer tightening proves that there is none; where it
cannot, the value counts as overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .affine import Affine, Range
from .regions import Access, Place, Program, Statement, While, inside, places

#: Inequalities at which a proof is given up.
MOST_ROWS = 400

Row = dict[str, int]  # Σ coefficient · variable + row[""] >= 0


def infeasible(rows: Iterable[Row]) -> bool:
    """Whether no integers satisfy all inequalities; False where that is not proved."""
    system: list[Row] = []
    for row in rows:
        kept = _tight(row)
        if kept is None:
            continue
        if len(kept) == 1 and "" in kept:
            return True
        system.append(kept)
    system = _pruned(system)
    while True:
        counts: dict[str, tuple[int, int]] = {}
        for row in system:
            for name, times in row.items():
                if name:
                    up, down = counts.get(name, (0, 0))
                    counts[name] = (up + (times > 0), down + (times < 0))
        if not counts:
            return False
        name = min(counts, key=lambda n: (counts[n][0] * counts[n][1], n))
        lower = [row for row in system if row.get(name, 0) > 0]
        upper = [row for row in system if row.get(name, 0) < 0]
        rest = [row for row in system if not row.get(name, 0)]
        if len(rest) + len(lower) * len(upper) > MOST_ROWS:
            return False
        for one in lower:
            for other in upper:
                made = _combined(one, other, name)
                kept = _tight(made)
                if kept is None:
                    continue
                if len(kept) == 1 and "" in kept:
                    return True
                rest.append(kept)
        system = _pruned(rest)


def _tight(row: Row) -> Row | None:
    """The row over its greatest common divisor, the constant rounded down; None if it always holds, {"": -1} if it never does."""
    terms = {name: times for name, times in row.items() if name and times}
    constant = row.get("", 0)
    if not terms:
        return {"": -1} if constant < 0 else None
    divisor = math.gcd(*terms.values())
    return {**{name: times // divisor for name, times in terms.items()}, "": constant // divisor}


def _combined(lower: Row, upper: Row, name: str) -> Row:
    up, down = lower[name], -upper[name]
    made: Row = {}
    for row, times in ((lower, down), (upper, up)):
        for key, value in row.items():
            made[key] = made.get(key, 0) + times * value
    made.pop(name, None)
    return made


def _pruned(system: list[Row]) -> list[Row]:
    """Of inequalities with equal terms, the tightest."""
    best: dict[tuple[tuple[str, int], ...], int] = {}
    for row in system:
        key = tuple(sorted((name, times) for name, times in row.items() if name and times))
        best[key] = min(best.get(key, row.get("", 0)), row.get("", 0))
    return [{**dict(key), "": constant} for key, constant in best.items()]


def row_of(index: Affine, rename: dict[str, str], tag: str) -> Row:
    """`index >= 0` as a row; variables are renamed, and each read of an integer array is a variable of its own."""
    row: Row = {"": index.constant}
    for atom, times in index.terms:
        name = rename.get(atom, atom) if isinstance(atom, str) else f"{tag}{atom}"
        row[name] = row.get(name, 0) + times
    return row


def bounds(ranges: Iterable[Range], rename: dict[str, str], tag: str) -> list[Row]:
    """The inequalities that hold inside these loops."""
    rows = []
    for one in ranges:
        name = rename.get(one.name, one.name)
        low, high = one.span
        least = row_of(-low, rename, tag)
        least[name] = least.get(name, 0) + 1
        most = row_of(high, rename, tag)
        most[name] = most.get(name, 0) - 1
        rows += [least, most]
    return rows


@dataclass(frozen=True)
class _Write:
    statement: Statement
    access: Access
    place: Place


class Dependence:
    """Asks what may be overwritten later, for one program; answers are remembered.

    Without `trusting`, everything that is written at all counts as overwritten: nothing is read where it is but untouched inputs.
    """

    def __init__(self, program: Program, *, trusting: bool = True) -> None:
        self._trusting = trusting
        self.places = places(program.root)
        self._writes: dict[str, list[_Write]] = {}
        for statement in program.statements():
            for access in statement.writes():
                self._writes.setdefault(access.array, []).append(_Write(statement, access, self.places[statement.serial]))
            if isinstance(statement, While):
                write = _Write(statement, Access(statement.trips, ()), self.places[statement.serial])
                self._writes.setdefault(statement.trips, []).append(write)
        self._known: dict[tuple[int, Access, bool], bool] = {}

    def written(self, array: str) -> bool:
        """Whether the program writes to the array at all."""
        return array in self._writes

    def writers(self, array: str) -> list[Statement]:
        """The statements that write to the array."""
        return [write.statement for write in self._writes.get(array, ())]

    def intact(self, statement: Statement, read: Access, *, after: bool = False) -> bool:
        """Whether nothing that runs later writes to what the statement reads; with `after`, to what it has just written."""
        if not self._trusting:
            return read.array not in self._writes
        key = (statement.serial, read, after)
        if key not in self._known:
            self._known[key] = all(not self._may_overwrite(statement, read, write, after) for write in self._writes.get(read.array, ()))
        return self._known[key]

    def _may_overwrite(self, statement: Statement, read: Access, write: _Write, after: bool) -> bool:
        here, there = self.places[statement.serial], write.place
        shared = 0
        for mine, other in zip(here.loops, there.loops):
            if mine is not other:
                break
            shared += 1
        # A loop that is the reader itself (its bounds are read once) runs everything inside it afterwards.
        rename = {one.name: f"{one.name}'" for one in (*there.ranges, *write.access.ranges)}
        fixed = bounds((*here.ranges, *read.ranges), {}, "r")
        fixed += bounds((*there.ranges, *write.access.ranges), rename, "w")
        for one, its in zip(read.index, write.access.index):
            if one.loads or its.loads:
                continue
            ahead, behind = row_of(one, {}, "r"), row_of(its, rename, "w")
            fixed.append({key: ahead.get(key, 0) - behind.get(key, 0) for key in {*ahead, *behind}})
            fixed.append({key: behind.get(key, 0) - ahead.get(key, 0) for key in {*ahead, *behind}})
        for level in range(shared + 1):
            if level == shared and not self._follows(statement, write.statement, after):
                continue
            order = list(fixed)
            for common in here.ranges[:level]:
                order.append({common.name: 1, f"{common.name}'": -1})
                order.append({common.name: -1, f"{common.name}'": 1})
            if level < shared:
                carrying = here.ranges[level]
                sign = 1 if carrying.step > 0 else -1
                order.append({f"{carrying.name}'": sign, carrying.name: -sign, "": -1})
            if not infeasible(order):
                return True
        return False

    def _follows(self, reader: Statement, writer: Statement, after: bool) -> bool:
        """Whether the writer comes later in the text, within one pass through the loops that both are in."""
        if reader is writer:
            return not after
        for (body, mine), (other_body, other) in zip(self.places[reader.serial].path, self.places[writer.serial].path):
            if body != other_body:
                return 0 <= body < other_body  # Of the two sides of an if only one runs.
            if mine != other:
                return other > mine
        return any(one is writer for one in inside(reader))
