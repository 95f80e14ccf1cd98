"""Which candidates are stored and which are computed again: the fastest choice within a limit of memory.

An integer program. For each candidate i, c_i = 1 stores it and u_i = 1 computes it again; u_i >= 1 - c_i where the reverse pass needs it,
and u_j >= u_i - c_j where computing i takes j. Exactly one option of each loop is chosen. The time is that of all that is computed again,
of all pushes and of all replays; at every part of the program, tapes, snapshots and buffers together stay within the limit. The bytes of a
tape depend on the options of the loops around it, so each combination has a variable that is 1 if all of them are chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from armillary.errors import InputError

from ..program.regions import Program, Statement, inside
from .candidates import Candidate, Forwarding
from .counting import Balance
from .replay import TAPE, Option, Replay

Strategy = Literal["ilp", "store", "recompute"]
NODES = 10_000
#: At most this many loops inside each other are replayed, from the outermost; those further in are on the tape.
MOST_NESTED = 3


@dataclass
class Plan:
    """What is stored, what is computed again, how each loop is reversed, and what that promises."""

    stored: frozenset[int]
    recomputed: frozenset[int]
    options: dict[int, Option]
    #: Bytes of tapes, snapshots and buffers at the worst part of the program.
    bytes: int
    #: Seconds of computing again, of pushes and of replays.
    seconds: float
    #: Bytes of everything, part by part of the program.
    by_part: tuple[int, ...] = ()
    optimal: bool = True
    notes: tuple[str, ...] = field(default=())

    def at_once(self) -> dict[int, int]:
        """How many passes of each replayed loop are on the tape."""
        return {serial: option.at_once for serial, option in self.options.items() if not option.taped}


class Model:
    """The times and bytes that a plan is made of."""

    def __init__(self, program: Program, forwarding: Forwarding, replays: Sequence[Replay], balance: Balance) -> None:
        self.program, self.forwarding, self.balance = program, forwarding, balance
        self.candidates = forwarding.candidates
        self.replays: dict[int, Replay] = {}
        for one in replays:  # Outer loops come first.
            if sum(loop.serial in self.replays for loop in one.loops) < MOST_NESTED:
                self.replays[one.loop.serial] = one
        self.parts = len(program.root)
        self._part = {one.serial: k for k, top in enumerate(program.root) for one in inside(top)}
        self._bytes: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}

    def part(self, candidate: Candidate) -> int:
        """The statement at the top of the program that a candidate belongs to."""
        return self._part[candidate.body[candidate.first].serial]

    def buffer_parts(self, candidate: Candidate) -> tuple[int, int]:
        """The first and last statements at the top of the program whose reverse uses a candidate's buffer."""
        if candidate.body is not self.program.root:
            return self.part(candidate), self.part(candidate)
        takers = [one for one in self.candidates if candidate.number in one.takes]
        return candidate.first, max([candidate.last, *(self.buffer_parts(one)[1] for one in takers)])

    def around(self, loops: Sequence[Statement]) -> list[Replay]:
        """The loops among these that can be replayed, outermost first."""
        return [self.replays[one.serial] for one in loops if one.serial in self.replays]

    def store_s(self, candidate: Candidate) -> float:
        """Seconds of pushing and reading a candidate."""
        return 2 * candidate.bytes({}) * self.balance.byte_s

    def again_s(self, candidate: Candidate) -> float:
        """Seconds of computing a candidate again, without what it takes."""
        return candidate.cost.seconds(self.balance)

    def replay_s(self, replay: Replay, option: Option) -> float:
        """Seconds that an option of a loop costs."""
        passes, moved = replay.extra(option)
        return passes * replay.cost.seconds(self.balance) + moved * self.balance.byte_s

    def tape_bytes(self, candidate: Candidate, options: Sequence[tuple[Replay, Option]]) -> int:
        """Bytes of a candidate's tape."""
        key = (candidate.number, tuple((one.loop.serial, option.at_once) for one, option in options if not option.taped))
        if key not in self._bytes:
            self._bytes[key] = candidate.bytes(dict(key[1]))
        return self._bytes[key]

    def snapshot_bytes(self, replay: Replay, option: Option, outer: Sequence[tuple[Replay, Option]]) -> int:
        """Bytes of a loop's snapshots."""
        return replay.snapshot_bytes(option, {one.loop.serial: other.at_once for one, other in outer if not other.taped})

    def buffer_bytes(self, candidate: Candidate) -> int:
        """Bytes of the buffer in which a candidate is computed again; a scalar needs none."""
        return candidate.array.nbytes if candidate.array.shape else 0

    def evaluate(self, stored: frozenset[int], options: dict[int, Option]) -> Plan:
        """The plan that stores these candidates and reverses loops like this."""
        recomputed = self._recomputed(stored)
        seconds = sum(self.store_s(self.candidates[k]) for k in stored) + sum(self.again_s(self.candidates[k]) for k in recomputed)
        seconds += sum(self.replay_s(one, options.get(serial, TAPE)) for serial, one in self.replays.items())
        early, late = np.zeros(self.parts, np.int64), np.zeros(self.parts, np.int64)
        for number in stored:
            candidate = self.candidates[number]
            chosen = [(one, options.get(one.loop.serial, TAPE)) for one in self.around(candidate.loops)]
            early[self.part(candidate)] += self.tape_bytes(candidate, chosen)
        for number in recomputed:
            first, last = self.buffer_parts(self.candidates[number])
            late[first : last + 1] += self.buffer_bytes(self.candidates[number])
        for serial, replay in self.replays.items():
            outer = [(one, options.get(one.loop.serial, TAPE)) for one in self.around(replay.loops)]
            early[self._part[serial]] += self.snapshot_bytes(replay, options.get(serial, TAPE), outer)
        by_part = np.cumsum(early) + late
        return Plan(stored, recomputed, dict(options), int(by_part.max(initial=0)), float(seconds), tuple(by_part.tolist()))

    def _recomputed(self, stored: frozenset[int]) -> frozenset[int]:
        found: set[int] = set()
        todo = [one.number for one in self.candidates if one.direct and one.number not in stored]
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo += [k for k in self.candidates[number].takes if k not in stored]
        return frozenset(found)


def recomputable(model: Model) -> set[int]:
    """The candidates that can be computed again from what is in memory, stored, or can be computed again itself."""
    return {one.number for one in model.candidates if one.slice is not None}


def store_all(model: Model) -> Plan:
    """Everything that the reverse pass needs on a tape."""
    return model.evaluate(frozenset(one.number for one in model.candidates if one.direct), {})


def recompute_all(model: Model) -> Plan:
    """Everything computed again that can be: each loop from its beginning."""
    can = recomputable(model)
    forced: set[int] = set()
    todo = [one.number for one in model.candidates if one.direct]
    seen: set[int] = set()
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        if number in can:
            todo += model.candidates[number].takes
        else:
            forced.add(number)
    options = {serial: max(one.options, key=lambda o: o.every) for serial, one in model.replays.items() if _helps(model, one, forced)}
    return model.evaluate(frozenset(forced), options)


def _helps(model: Model, replay: Replay, stored: set[int]) -> bool:
    """Whether something that is stored lies inside a loop."""
    return any(any(loop is replay.loop for loop in model.candidates[k].loops) for k in stored)


def best(model: Model, limit: int | None) -> Plan:
    """The fastest plan within the limit, by the integer program; InputError with the least possible limit where there is none."""
    found, aim = _solve(model, limit), limit
    for _ in range(5):  # The solver's tolerance is a millionth of the limit.
        if found is None or limit is None or aim is None or found.bytes <= limit:
            break
        aim -= max(1, found.bytes - limit)
        found = _solve(model, aim)
    if found is None:
        least = _solve(model, None, least_memory=True)
        at_least = least.bytes if least is not None else recompute_all(model).bytes
        raise InputError(f"found a limit of {limit} bytes; the gradient needs at least {at_least}", where="memory")
    return found


def _solve(model: Model, limit: int | None, *, least_memory: bool = False) -> Plan | None:
    candidates, can = model.candidates, recomputable(model)
    if not candidates:
        return model.evaluate(frozenset(), {})
    n = len(candidates)
    columns: list[float] = []  # The objective, one entry per variable.
    integral: list[int] = []
    upper: list[float] = []
    rows: list[tuple[dict[int, float], float, float]] = []  # (coefficients, low, high)

    def variable(price: float, *, whole: bool = False, most: float = 1.0) -> int:
        columns.append(0.0 if least_memory else price)
        integral.append(int(whole))
        upper.append(most)
        return len(columns) - 1

    scale = max(model.evaluate(frozenset(one.number for one in candidates if one.direct), {}).seconds, 1e-9)
    store = [variable(model.store_s(one) / scale, whole=True) for one in candidates]
    again = [variable(model.again_s(one) / scale) for one in candidates]
    for one in candidates:
        k = one.number
        if one.direct:
            rows.append(({again[k]: 1, store[k]: 1}, 1, np.inf))
        if k not in can:
            rows.append(({again[k]: 1}, 0, 0))
        rows += [({again[other]: 1, store[other]: 1, again[k]: -1}, 0, np.inf) for other in one.takes]
    chosen: dict[tuple[int, Option], int] = {}
    for serial, replay in model.replays.items():
        for option in replay.options:
            chosen[serial, option] = variable(model.replay_s(replay, option) / scale, whole=True)
        rows.append(({chosen[serial, option]: 1.0 for option in replay.options}, 1, 1))
    early: list[dict[int, float]] = [{} for _ in range(model.parts)]
    late: list[dict[int, float]] = [{} for _ in range(model.parts)]
    base = np.zeros(model.parts)

    def uses(part: int, loops: Sequence[Replay], own: int | None, bytes_of: object) -> None:
        """Adds the bytes of something, for every combination of options around it."""
        combinations = list(itertools.product(*(one.options for one in loops)))
        for options in combinations:
            bytes_ = bytes_of(list(zip(loops, options)))  # type: ignore[operator]
            if not bytes_:
                continue
            parts = [chosen[one.loop.serial, option] for one, option in zip(loops, options)] + ([] if own is None else [own])
            if len(parts) == 1:
                early[part][parts[0]] = early[part].get(parts[0], 0) + bytes_
                continue
            if not parts:
                base[part:] += bytes_
                continue
            both = variable(0.0)
            rows.append(({both: 1, **dict.fromkeys(parts, -1.0)}, 1 - len(parts), np.inf))
            early[part][both] = bytes_

    for one in candidates:
        part = model.part(one)
        uses(part, model.around(one.loops), store[one.number], lambda options, one=one: model.tape_bytes(one, options))
        first, last = model.buffer_parts(one)
        for place in range(first, last + 1) if model.buffer_bytes(one) else ():
            late[place][again[one.number]] = model.buffer_bytes(one)
    for serial, replay in model.replays.items():
        part = model._part[serial]
        outer = model.around(replay.loops)
        for option in replay.options:
            if not option.taped:
                uses(part, outer, chosen[serial, option],
                     lambda options, replay=replay, option=option: model.snapshot_bytes(replay, option, options))  # fmt: skip
    unit = 1024.0
    peak = variable(1.0, most=np.inf) if least_memory else None
    if peak is not None:
        columns[peak] = 1.0
    for part in range(model.parts):
        terms: dict[int, float] = {}
        for k in range(part + 1):
            for name, bytes_ in early[k].items():
                terms[name] = terms.get(name, 0) + bytes_ / unit
        for name, bytes_ in late[part].items():
            terms[name] = terms.get(name, 0) + bytes_ / unit
        if peak is not None:
            rows.append(({**terms, peak: -1.0}, -np.inf, -base[part] / unit))
        elif limit is not None and (terms or base[part] > limit):
            rows.append((terms, -np.inf, (limit - base[part]) / unit))
    found = _milp(columns, integral, upper, rows)
    if found is None:
        return None
    values, optimal = found
    stored = frozenset(k for k in range(n) if values[store[k]] > 0.5)
    options = {serial: option for (serial, option), name in chosen.items() if values[name] > 0.5 and not option.taped}
    # What is stored and never used costs nothing to leave out.
    needed = frozenset(k for k in stored if candidates[k].direct or _taken(model, k, stored))
    plan = model.evaluate(needed, options)
    plan.optimal = optimal
    return plan


def _taken(model: Model, number: int, stored: frozenset[int]) -> bool:
    return any(number in model.candidates[k].takes for k in model._recomputed(stored))


def _milp(
    columns: list[float], integral: list[int], upper: list[float], rows: list[tuple[dict[int, float], float, float]]
) -> tuple[np.ndarray, bool] | None:
    """The solution by HiGHS with gap 0, and whether it is proved to be best; None where there is none."""
    entries = [(r, c, v) for r, (terms, _, _) in enumerate(rows) for c, v in terms.items()]
    matrix = coo_array(([e[2] for e in entries], ([e[0] for e in entries], [e[1] for e in entries])), shape=(len(rows), len(columns)))
    constraints = LinearConstraint(matrix.tocsr(), np.array([row[1] for row in rows]), np.array([row[2] for row in rows])) if rows else ()
    solved = milp(
        np.array(columns), integrality=np.array(integral), bounds=Bounds(0, np.array(upper)), constraints=constraints,
        options={"mip_rel_gap": 0.0, "node_limit": NODES},
    )  # fmt: skip
    if solved.x is None:
        return None
    return solved.x, solved.status == 0
