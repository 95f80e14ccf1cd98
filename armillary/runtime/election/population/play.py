"""Plays a protocol from a start until its ranks are right, and watches for some time after that."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import kernel, loop, part

from .protocol import Population, Protocol
from .randomness import Ints, Words, draw_pairs, words

#: Interactions that are drawn at once, at most.
CHUNK = 1 << 16
#: What is watched after the ranks are right: a share of the time that it took, cycles of the protocol's clock, and at least so long.
AFTER, CYCLES, LEAST = 0.25, 10.0, 20.0


class Ranks(NamedTuple):
    """How often each rank is shown (0 stands for none), and the number of ranks that exactly one agent shows."""

    held: npt.NDArray[np.int64]
    #: [ranks that are held once, interactions in which a rank changed]
    totals: npt.NDArray[np.int64]


@dataclass
class Result:
    """What came of a run; times are parallel: interactions per agent."""

    protocol: Protocol
    population: Population
    #: When the ranks became right for good, and whether they did; the time after which the run was given up where they did not.
    time: float
    success: bool
    interactions: int
    #: Whether right ranks were lost again, or came to depend on hidden tokens that disagree.
    relapsed: bool = False
    #: (parallel time, ranks that exactly one agent shows).
    trajectory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """The rank of each agent, or 0."""
        return shown(self.protocol, self.population)

    @property
    def leader(self) -> int | None:
        """The agent that alone shows rank 1."""
        found = np.flatnonzero(self.ranks == 1)
        return int(found[0]) if len(found) == 1 else None


class Run:
    """A population that can be advanced by any pairs."""

    def __init__(self, protocol: Protocol, population: Population, random: Words) -> None:
        self.protocol, self.population, self.random = protocol, population, random
        self._advance, look = compiled(protocol)
        n = protocol.n
        self.ranks = Ranks(np.zeros(n + 1, np.int64), np.zeros(2, np.int64))
        look(population.agents, protocol.constants, *self.ranks)

    @property
    def right(self) -> bool:
        """Whether every rank is held by exactly one agent."""
        return int(self.ranks.totals[0]) == self.protocol.n

    @property
    def consistent(self) -> bool:
        """Whether nothing hidden can undo right ranks."""
        made = self.population
        return bool(type(self.protocol).consistent(made.agents, made.memory, self.protocol.constants))

    def advance(self, first: Ints, second: Ints, *, stop: bool = False) -> int:
        """Lets the pairs meet; returns how many have met, fewer than all where ranks became right or ceased to be and `stop` is set."""
        made = self.population
        return int(self._advance(made.agents, made.memory, first, second, self.random, self.protocol.constants, *self.ranks, stop))


def play(
    protocol: Protocol,
    start: str | Population,
    rng: np.random.Generator,
    *,
    own: np.random.Generator | None = None,
    patience: float | None = None,
    after: float = AFTER,
    cycles: float = CYCLES,
) -> Result:
    """One run: `rng` draws the start and who meets, `own` what the protocol itself draws.

    patience: the parallel time after which a run without right ranks is given up. The run goes on for `after` of the time that it took,
    and for `cycles` of the protocol's clock, in which right ranks must not be lost.
    """
    population = protocol.begin(start, rng) if isinstance(start, str) else start.copy()
    own = rng if own is None else own
    run = Run(protocol, population, words(own))
    pairs, n = words(rng), protocol.n
    budget = int((protocol.patience if patience is None else patience) * n)
    chunk = min(CHUNK, max(1024, 64 * n))
    first, second = np.zeros(chunk, np.int32), np.zeros(chunk, np.int32)
    done, right_at, end = 0, -1, budget
    course: list[tuple[float, int]] = [(0.0, int(run.ranks.totals[0]))]
    if run.right and run.consistent:
        right_at, end = 0, int(max(cycles * protocol.cycle, LEAST) * n)
    while done < end:
        draw_pairs(pairs, n, first, second)
        at, many = 0, min(chunk, end - done)
        while at < many:
            # Where tokens do not agree with right ranks, they are looked at once per unit of time.
            upto = many if right_at >= 0 or not run.right else min(many, at + n)
            met = run.advance(first[at:upto], second[at:upto], stop=True)
            at, done = at + met, done + met
            if right_at >= 0 and not run.right:
                return Result(protocol, population, budget / n, False, done, True, course)
            if right_at < 0 and run.right and run.consistent:
                right_at = done
                end = done + max(int(after * done), int(cycles * protocol.cycle * n), int(LEAST * n))
                many = min(many, at + end - done)
                course.append((done / n, n))
        if len(course) < 2000:
            course.append((done / n, int(run.ranks.totals[0])))
    relapsed = right_at >= 0 and not run.consistent
    success = right_at >= 0 and not relapsed
    return Result(protocol, population, (right_at if success else budget) / n, success, done, relapsed, course)


def simulate(technique: Any, n: int, start: str = "one-duplicate", seed: int = 0, **how: float) -> Result:
    """One run of a technique, such as `Tradeoff(rho=32)`, or of a protocol's class, with n agents."""
    from armillary.streams import stream

    protocol = technique.protocol(n) if hasattr(technique, "protocol") else technique(n)
    return play(protocol, start, stream(seed, "election"), own=stream(seed, "election", "own"), **how)


def run_schedule(
    technique: Any, start: Population | str, first: npt.ArrayLike, second: npt.ArrayLike, *, n: int | None = None, seed: int = 0
) -> Result:
    """Lets the pairs of a schedule meet in their order; what the protocol itself draws depends on the seed alone."""
    from armillary.streams import stream

    many = len(start.agents) if isinstance(start, Population) else n
    if many is None:
        raise InputError("a start by name needs the number of agents, n")
    protocol = technique.protocol(many) if hasattr(technique, "protocol") else technique(many)
    population = protocol.begin(start, stream(seed, "election")) if isinstance(start, str) else start.copy()
    u, v = checked_schedule(first, second, many)
    run = Run(protocol, population, words(stream(seed, "election", "own")))
    right_at, done, course, lost = (0 if run.right and run.consistent else -1), 0, [(0.0, int(run.ranks.totals[0]))], False
    while done < len(u):
        done += run.advance(u[done:], v[done:], stop=True)
        lost |= right_at >= 0 and not run.right
        right_at = right_at if run.right and right_at >= 0 else done if run.right and run.consistent else -1
        course.append((done / many, int(run.ranks.totals[0])))
    ended = run.right and run.consistent
    return Result(protocol, population, (right_at if ended else len(u)) / many, ended, len(u), lost, course)


def checked_schedule(first: npt.ArrayLike, second: npt.ArrayLike, n: int) -> tuple[Ints, Ints]:
    """The pairs as arrays; raises InputError, naming the row, for an agent that there is not or that meets itself."""
    u, v = np.asarray(first), np.asarray(second)
    if u.shape != v.shape or u.ndim != 1:
        raise InputError(f"found {u.shape} initiators and {v.shape} responders; expected as many of one as of the other")
    for name, column in (("initiator", u), ("responder", v)):
        wrong = np.flatnonzero((column < 0) | (column >= n))
        if len(wrong):
            raise InputError(f"row {wrong[0]}: {name}: found {column[wrong[0]]}; expected an agent from 0 to {n - 1}")
    same = np.flatnonzero(u == v)
    if len(same):
        raise InputError(f"row {same[0]}: found agent {u[same[0]]} meeting itself; expected two agents")
    return u.astype(np.int32), v.astype(np.int32)


def shown(protocol: Protocol, population: Population) -> npt.NDArray[np.int64]:
    """The rank that each agent shows, or 0."""
    output = type(protocol).output
    return np.array([output(population.agents, u, protocol.constants) for u in range(protocol.n)], np.int64)


def recorded(n: int, many: int, rng: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of a random schedule, in chunks."""
    state = words(rng)
    for begin in range(0, many, CHUNK):
        first, second = np.zeros(CHUNK, np.int32), np.zeros(CHUNK, np.int32)
        draw_pairs(state, n, first, second)
        yield first[: many - begin], second[: many - begin]


def compiled(protocol: Protocol) -> tuple[Callable[..., int], Callable[..., None]]:
    """The loops over a protocol's interactions, and over its agents."""
    return _compiled(type(protocol).interact, type(protocol).output)


@functools.cache
def _compiled(interact: Any, output: Any) -> tuple[Callable[..., int], Callable[..., None]]:
    @part
    def rank_in(agents, u, constants):  # type: ignore[no-untyped-def]
        """The rank that u shows; one that there is not counts as none."""
        rank = output(agents, u, constants)
        return rank if 0 < rank <= len(agents) else 0

    @loop
    def advance(agents, memory, first, second, random, constants, held, totals, stop):  # type: ignore[no-untyped-def]
        n = len(agents)
        for k in range(len(first)):
            u, v = first[k], second[k]
            a, b = rank_in(agents, u, constants), rank_in(agents, v, constants)
            interact(agents, memory, u, v, random, constants)
            c, d = rank_in(agents, u, constants), rank_in(agents, v, constants)
            if a != c or b != d:
                before = totals[0]
                for old, new in ((a, c), (b, d)):
                    if old > 0:
                        held[old] -= 1
                        totals[0] += (held[old] == 1) - (held[old] == 0)
                    else:
                        held[0] -= 1
                    if new > 0:
                        held[new] += 1
                        totals[0] += (held[new] == 1) - (held[new] == 2)
                    else:
                        held[0] += 1
                totals[1] += 1
                if stop and (before == n) != (totals[0] == n):
                    return k + 1
        return len(first)

    @kernel
    def look(agents, constants, held, totals):  # type: ignore[no-untyped-def]
        for u in range(len(agents)):
            rank = rank_in(agents, u, constants)
            held[rank] += 1
            if rank > 0:
                totals[0] += (held[rank] == 1) - (held[rank] == 2)

    return advance, look
