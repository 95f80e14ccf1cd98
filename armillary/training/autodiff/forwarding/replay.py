"""Loops that can be run again from a snapshot, so that their tape holds a few passes only.

Reversing a loop of T passes with a tape needs every pass on it. With a snapshot of the loop's state before every k-th pass, the k passes of
a segment are recorded when they are about to be reversed: ceil(T/k) snapshots and a tape of k passes, for one more forward run. With a
shorter tape of m passes, each m passes of a segment are reached by running it from its snapshot. One snapshot and a tape of one pass is the
least memory, for T²/2 passes. The last m passes are recorded by the forward run itself.

A replay runs only the statements that the recorded values depend on. What stays in memory unchanged need not be computed again, so it is
neither run nor part of the state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..program.regions import Array, Dot, Loop, Map, Program, Statement, While, bodies, inside, written
from ..reversal.activity import covers
from .candidates import Candidate, Forwarding, values_read
from .counting import Cost, Pass, capacity, cost, executions, known, trips


@dataclass(frozen=True)
class Option:
    """How a loop is reversed: a snapshot before every `every`-th pass, `at_once` passes on the tape; 0 for no snapshot, all on the tape."""

    every: int = 0
    at_once: int = 0

    @property
    def taped(self) -> bool:
        """Whether all passes are on the tape."""
        return self.every == 0


TAPE = Option()


@dataclass
class Replay:
    """One loop that can be replayed."""

    loop: Loop
    #: The loops around it.
    loops: tuple[Statement, ...]
    #: The arrays that a replay computes again.
    keep: frozenset[str]
    #: The arrays that a snapshot holds.
    state: tuple[str, ...]
    #: The arrays that the loop reads and something after it overwrites: saved once per run of the loop.
    inputs: tuple[str, ...]
    #: The most passes of one run of the loop.
    most: int
    #: The work of all its passes, over all its runs.
    cost: Cost
    state_bytes: int
    input_bytes: int
    options: tuple[Option, ...]

    def extra(self, option: Option) -> tuple[float, float]:
        """(passes run again for each pass of the loop, bytes copied for snapshots over all runs)."""
        if option.taped:
            return 0.0, 0.0
        runs, again, restores = executions(self.loops), 0, 0
        for begin in range(0, self.most, option.every):
            end = min(self.most, begin + option.every)
            for first in range(begin, end, option.at_once):
                last = min(end, first + option.at_once)
                if last < self.most:
                    again += last - begin
                    restores += 1
        moved = math.ceil(self.most / option.every) + restores
        return again / self.most, runs * moved * self.state_bytes

    def snapshot_bytes(self, option: Option, at_once: dict[int, int]) -> int:
        """The bytes of the snapshots that exist at once."""
        if option.taped:
            return 0
        return self.snapshots(option, at_once) * self.state_bytes + self.runs(at_once) * self.input_bytes

    def snapshots(self, option: Option, at_once: dict[int, int]) -> int:
        """The number of snapshots that exist at once."""
        range_ = self.loop.range
        uses = {*range_.low.names(), *range_.high.names()}
        return capacity(self._passes(at_once), lambda at: -(-trips(range_, at) // option.every), uses)

    def runs(self, at_once: dict[int, int]) -> int:
        """The number of runs of the loop that are recorded at once."""
        return capacity(self._passes(at_once), lambda _: np.asarray(1), set())

    def _passes(self, at_once: dict[int, int]) -> list[Pass]:
        return [Pass(one.range, at_once.get(one.serial)) for one in self.loops if isinstance(one, Loop)]


def replays(program: Program, forwarding: Forwarding) -> list[Replay]:
    """The loops that hold candidates and can be replayed, outer ones first."""
    found = []
    for statement, loops in _loops(program.root, ()):
        inner = [one for one in forwarding.candidates if any(loop is statement for loop in one.loops)]
        if not inner or any(one.growing for one in inner) or any(isinstance(one, While) for one in (*loops, *inside(statement))):
            continue
        if not all(known(end) for end in (statement.range.low, statement.range.high)):
            continue
        around = [Pass(one.range, 1) for one in loops if isinstance(one, Loop)]
        most = capacity([*around, Pass(statement.range)], lambda _: np.asarray(1), set())
        if most < 2:
            continue
        found.append(_replay(program, forwarding, statement, loops, inner, most, depth=sum(isinstance(one, Loop) for one in loops)))
    return found


def _loops(body: list[Statement], around: tuple[Statement, ...]) -> list[tuple[Loop, tuple[Statement, ...]]]:
    found: list[tuple[Loop, tuple[Statement, ...]]] = []
    for statement in body:
        if isinstance(statement, Loop):
            found.append((statement, around))
        inner = (*around, statement) if isinstance(statement, Loop | While) else around
        for part in bodies(statement):
            found += _loops(part, inner)
    return found


def _replay(
    program: Program, forwarding: Forwarding, loop: Loop, loops: tuple[Statement, ...], inner: list[Candidate], most: int, depth: int
) -> Replay:
    keep = _closure(forwarding, loop, {one.array.name for one in inner})
    changed = written(loop)
    state = tuple(sorted(name for name in keep & changed if _carried(loop, name, program.arrays)))
    inputs = tuple(sorted(keep - changed))
    state_bytes, input_bytes = (sum(program.arrays[name].nbytes for name in names) for names in (state, inputs))
    total = cost(loop, loops, program.arrays, lambda one: bool({access.array for access in one.writes()} & keep))
    options = {TAPE, Option(most, 1)}
    root = max(2, round(math.sqrt(most)))
    sizes = {root} if depth else {root, *(1 << k for k in range(1, 20) if 1 << k < most)}
    options |= {Option(k, k) for k in sizes if k < most}
    options |= {Option(most, -(-most // parts)) for parts in ((2, 4) if depth else (2, 3, 4, 6, 8, 12, 16)) if most > parts}
    return Replay(
        loop,
        loops,
        frozenset(keep),
        state,
        inputs,
        most,
        total,
        state_bytes,
        input_bytes,
        tuple(sorted(options, key=lambda o: (o.every, o.at_once))),
    )


def _closure(forwarding: Forwarding, loop: Loop, wanted: set[str]) -> set[str]:
    """The arrays that have to be computed again for these: everything that their statements read and that does not stay in memory."""
    keep = set(wanted)
    around: dict[int, list[Statement]] = {}

    def note(body: list[Statement], outer: list[Statement]) -> None:
        for statement in body:
            around[statement.serial] = outer
            for part in bodies(statement):
                note(part, [*outer, statement])

    note(loop.body, [])
    statements = [one for part in loop.body for one in inside(part)]
    while True:
        before = len(keep)
        for statement in statements:
            if not {access.array for access in statement.writes()} & keep:
                continue
            for one in (statement, *around[statement.serial]):
                for load in values_read(one):
                    if not forwarding.intact(one, load):
                        keep.add(load.array)
                if isinstance(one, While):
                    keep |= {one.condition, one.trips}
        if len(keep) == before:
            return keep


def _carried(loop: Loop, name: str, arrays: dict[str, Array]) -> bool:
    """Whether a pass begins with content of an array from before: unless its first use in the body sets all of it."""
    for statement in loop.body:
        # A statement that a replay leaves out may still be the first that the value is recorded for.
        reads = any(access.array == name for one in inside(statement) for access in one.reads())
        writes = any(access.array == name for one in inside(statement) for access in one.writes())
        if not reads and not writes:
            continue
        return reads or not (isinstance(statement, Map | Dot) and covers(statement, arrays))
    return True
