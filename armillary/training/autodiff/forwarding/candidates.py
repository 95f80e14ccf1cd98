"""The values that have to be carried to the reverse pass, and how each could be computed again.

A *candidate* is the content of an array (of the part of it that is needed) from one write to the next, within one sequence of statements.
It can be stored: then every pass through the sequence pushes it on a tape. It can be computed again if a statement of the same sequence
sets all of it, and everything that the statements up to then read is at hand: still in memory, or itself a candidate. A value that comes
from the pass before is always on the tape; its loop may then be replayed in segments, so that the tape is short (`options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..program.affine import Affine, Range, extremes, number
from ..program.dependence import Dependence, bounds, infeasible, row_of
from ..program.expressions import Load
from ..program.regions import Access, ArgBest, Array, Branch, Check, Dot, Loop, Map, Program, Statement, While, bodies, inside, written
from ..reversal.adjoint import Reversed, own_ranges
from .counting import Cost, Pass, capacity, cost, executions, known

Body = list[Statement]
Box = tuple[tuple[Affine, Affine], ...]


@dataclass
class Candidate:
    """A value to carry: an array, the sequence in which it is constant, and which statement of it wrote last."""

    number: int
    array: Array
    body: Body
    #: The number of the statement in the sequence that wrote it last, -1 where it comes from before.
    epoch: int
    #: The loops around the sequence.
    loops: tuple[Statement, ...]
    #: The part that is needed: (low, high) for each dimension, in terms of the loops around.
    box: Box
    #: The number of the first statement of the sequence that needs it.
    first: int
    #: The number of the last one.
    last: int = 0
    #: Whether the reverse pass itself needs it, rather than the computation of another candidate.
    direct: bool = False
    #: The statements to run again, or None where it cannot be computed again.
    slice: list[int] | None = None
    #: Candidates that this takes.
    takes: list[int] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)

    @property
    def line(self) -> int:
        """The line of the source in which it was written last, or is needed first."""
        return self.body[self.epoch if self.epoch >= 0 else self.first].line

    @property
    def growing(self) -> bool:
        """Whether the tape's length is known only when it runs."""
        if any(isinstance(one, While) for one in self.loops):
            return True
        ends = [end for one in self.loops if isinstance(one, Loop) for end in (one.range.low, one.range.high)]
        return not all(known(end) for end in (*ends, *(end for pair in self.box for end in pair)))

    def bytes(self, at_once: dict[int, int]) -> int:
        """The bytes of its tape, where `at_once` gives, by loop, how many passes are recorded at a time."""
        if self.growing:
            return int(self.elements_once() * self.itemsize * executions(self.loops))
        passes = [Pass(one.range, at_once.get(one.serial)) for one in self.loops if isinstance(one, Loop)]
        uses = {name for pair in self.box for end in pair for name in end.names()}
        return capacity(passes, lambda at: box_size(self.box, at), uses) * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes per element on the tape."""
        return np.dtype(self.array.dtype).itemsize

    def elements_once(self) -> float:
        """Roughly, the elements of one push."""
        return float(np.prod([max(high.constant - low.constant, 1) if (high - low).fixed else size for (low, high), size in
                              zip(self.box, self.array.shape)]))  # fmt: skip


def box_size(box: Box, at: dict[str, np.ndarray]) -> np.ndarray:
    """The elements of a box, for arrays of values of loop variables."""
    size = np.asarray(1, np.int64)
    for low, high in box:
        length = np.asarray((high - low).constant, np.int64)
        for atom, times in (high - low).terms:
            length = length + times * at[atom]  # type: ignore[index]
        size = size * np.maximum(length, 0)
    return size


class Forwarding:
    """Finds the candidates of a program."""

    def __init__(self, program: Program, reversed_: Reversed, dependence: Dependence) -> None:
        self.program = program
        self.dependence = dependence
        self.candidates: list[Candidate] = []
        #: Where a read's value comes from in the reverse pass: a candidate's number, or None for memory.
        self.source: dict[tuple[int, Load], int | None] = {}
        #: The same when a statement is run again.
        self.again: dict[tuple[int, Load], int | None] = {}
        self._keys: dict[tuple[str, int, int], Candidate] = {}
        self._spines: dict[int, list[tuple[Body, int, tuple[Statement, ...]]]] = {}
        self._statements = {one.serial: one for one in program.statements()}
        self._spine(program.root, [], ())
        for serial, needs in reversed_.needs.items():
            for load in needs:
                self._need(self._statements[serial], load, direct=True)
        for candidate in list(self.candidates):
            self._slice(candidate)
        for candidate in self.candidates:  # What others take of a candidate may have made it larger than what its slice sets.
            if candidate.slice is not None and not self._sets(candidate.body[candidate.slice[0]], candidate):
                candidate.slice, candidate.takes = None, []

    def _spine(self, body: Body, path: list[tuple[Body, int, tuple[Statement, ...]]], loops: tuple[Statement, ...]) -> None:
        for place, statement in enumerate(body):
            here = [*path, (body, place, loops)]
            self._spines[statement.serial] = here
            around = (*loops, statement) if isinstance(statement, Loop | While) else loops
            for inner in bodies(statement):
                self._spine(inner, here, around)

    def intact(self, statement: Statement, load: Load) -> bool:
        """Whether a read's value stays in memory."""
        return self.dependence.intact(statement, Access(load.array, load.index, own_ranges(statement, load)))

    def _need(self, statement: Statement, load: Load, *, direct: bool, within: Body | None = None) -> Candidate | None:
        """The candidate that a read belongs to, or None where it stays in memory."""
        source = self.source if direct else self.again
        if self.intact(statement, load):
            source[statement.serial, load] = None
            return None
        found = self._place(statement, load, within)
        found.direct = found.direct or direct
        source[statement.serial, load] = found.number
        return found

    def _place(self, statement: Statement, load: Load, within: Body | None) -> Candidate:
        array = self.program.arrays[load.array]
        spine = self._spines[statement.serial]
        choices = []
        for depth, (body, place, loops) in enumerate(spine):
            child = body[place]
            if child is not statement and array.name in written(child):
                continue
            if within is not None and body is not within:
                continue
            ranges = tuple(_range(one) for one in spine[-1][2][len(loops) :]) + own_ranges(statement, load)
            box = self._hull(load, ranges, array, loops)
            choices.append((self._volume(box, array, loops), depth, body, place, loops, box))
        _, _, body, place, loops, box = min(choices, key=lambda one: (one[0], one[1]))
        epoch = max((k for k in range(place) if array.name in written(body[k])), default=-1)
        key = (array.name, id(body), epoch)
        found = self._keys.get(key)
        if found is None:
            found = Candidate(len(self.candidates), array, body, epoch, loops, box, place)
            self._keys[key] = found
            self.candidates.append(found)
        else:
            found.box = self._union(found.box, box, array, loops)
            found.first = min(found.first, place)
        found.last = max(found.last, place)
        return found

    def _hull(self, load: Load, ranges: tuple[Range, ...], array: Array, loops: tuple[Statement, ...]) -> Box:
        box = []
        for index, size in zip(load.index, array.shape):
            low, high = extremes(index, ranges)
            if low is None or high is None:
                box.append((number(0), number(size)))
            else:
                box.append((low, high + 1))
        return tuple(box)

    def _volume(self, box: Box, array: Array, loops: tuple[Statement, ...]) -> float:
        passes = [Pass(one.range) for one in loops if isinstance(one, Loop) and known(one.range.low) and known(one.range.high)]
        names = {one.range.name for one in passes}
        if any(name not in names for low, high in box for end in (low, high) for name in end.names()):
            return float(np.prod(array.shape, dtype=float)) * executions(loops)
        uses = {name for pair in box for end in pair for name in end.names()}
        return float(capacity(passes, lambda at: box_size(box, at), uses))

    def _union(self, a: Box, b: Box, array: Array, loops: tuple[Statement, ...]) -> Box:
        rows = bounds([_range(one) for one in loops], {}, "")

        def at_most(x: Affine, y: Affine) -> bool:
            return infeasible([*rows, row_of(x - y - 1, {}, "")])

        made = []
        for (low, high), (other_low, other_high), size in zip(a, b, array.shape):
            least = low if at_most(low, other_low) else other_low if at_most(other_low, low) else number(0)
            most = high if at_most(other_high, high) else other_high if at_most(high, other_high) else number(size)
            made.append((least, most))
        return tuple(made)

    # -- How a candidate is computed again ----------------------------------------------------------------------------------------------

    def _slice(self, candidate: Candidate) -> None:
        """Finds the statements that compute a candidate again, and the candidates that they take."""
        array, body = candidate.array, candidate.body
        writers = [k for k in range(candidate.epoch + 1) if array.name in written(body[k])]
        start = None
        for k in reversed(writers):
            if self._sets(body[k], candidate):
                start = k
                break
        if start is None:
            return
        slice_ = [k for k in writers if k >= start]
        takes: list[Candidate] = []
        for k in slice_:
            if written(body[k]) != {array.name} or any(isinstance(one, While) for one in inside(body[k])):
                return
            for statement in inside(body[k]):
                for load in values_read(statement):
                    if load.array == array.name:
                        continue
                    if self.intact(statement, load):
                        continue
                    if load.array in written(body[k]):
                        return
                    takes.append(self._need(statement, load, direct=False, within=body) or candidate)
        candidate.slice = slice_
        candidate.takes = sorted({one.number for one in takes} - {candidate.number})
        total = Cost()
        for k in slice_:
            total = total + cost(body[k], candidate.loops, self.program.arrays)
        candidate.cost = total
        for one in takes:
            if one.slice is None and one.number != candidate.number and one.epoch >= 0:
                self._slice(one)

    def _sets(self, statement: Statement, candidate: Candidate) -> bool:
        """Whether a statement sets all that is needed of a candidate without reading it."""
        if isinstance(statement, Dot):
            return True
        if not isinstance(statement, Map) or statement.add or any(load.array == candidate.array.name for load in statement.loads()):
            return False
        ranges = {one.name: one for one in statement.ranges}
        used: set[str] = set()
        rows = bounds([_range(one) for one in candidate.loops], {}, "")
        for index, (low, high) in zip(statement.index, candidate.box):
            names = [atom for atom, _ in index.terms if isinstance(atom, str) and atom in ranges]
            if index.loads or len(names) > 1:
                return False
            if names:
                if names[0] in used or index.coefficient(names[0]) not in (1, -1):
                    return False
                used.add(names[0])
                least, most = extremes(index, (ranges[names[0]],))
            else:
                least = most = index
            if least is None or most is None:
                return False
            if not infeasible([*rows, row_of(least - low - 1, {}, "")]) or not infeasible([*rows, row_of(high - most - 2, {}, "")]):
                return False
        return True


def values_read(statement: Statement) -> list[Load]:
    """The reads of a statement, as expressions."""
    if isinstance(statement, Dot):
        return [Load(one.array, one.access(statement.shapes[one.array]).index) for one in (statement.a, statement.b)]
    if isinstance(statement, Map):
        extra = [load for one in statement.ranges for atom in (*one.low.loads, *one.high.loads) for load in [atom]]
        return [*statement.loads(), *extra]
    if isinstance(statement, ArgBest | Check | Loop | Branch):
        return statement.loads()
    return []


def _range(loop: Statement) -> Range:
    if isinstance(loop, Loop):
        return loop.range
    return Range(f"while{loop.serial}", number(0), number(1 << 40))
