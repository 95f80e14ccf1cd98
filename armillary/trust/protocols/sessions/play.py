"""Plays sessions: every role follows its endpoint and chooses at random among what it may send, and how long it waits before.

`play` runs sessions in virtual time over delayed queues and says how they ended. A *race* is an instance of a mixed choice in which the
tentative role had spoken and the observer decided right; it ended in agreement if all who know its side hold the same one.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checking.machine import Machines
from ..endpoints.monitor import Broken, Monitored
from ..endpoints.session import Message, ProtocolError, Session, Step, Table
from ..endpoints.tables import table_of
from . import virtual_time
from .queues import Delayed

#: Median and spread of the delays, in virtual seconds, and the longest time that a role waits before it speaks.
MEDIAN_S, SIGMA, PATIENCE_S = 0.01, 1.0, 0.05
#: Steps after which a role takes the shortest way to the end, and after which it gives up.
ENOUGH, MOST_STEPS = 40, 400


@dataclass
class Ended:
    """How one session ended."""

    #: "agreement", or what went wrong: "stuck", "unexpected", "mistaken", "violation", "disagreement", "unended".
    how: str
    messages: int = 0
    discarded: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    races: int = 0
    agreed: int = 0
    said: str = ""


class Randomness:
    """Draws that are the same on every machine: delays by a table of a lognormal distribution, choices by whole numbers."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64DXSM(seed))
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        if not self._words:
            self._words = self._rng.integers(0, 1 << 32, 256, dtype=np.uint64).tolist()
        return self._words.pop() * n >> 32

    def delay_s(self) -> float:
        """Seconds on the way, in whole microseconds."""
        return _DELAYS[self.below(len(_DELAYS))]

    def patience_s(self) -> float:
        """Seconds before a role speaks, in whole microseconds."""
        return self.below(int(PATIENCE_S * 1e6)) / 1e6


def _quantiles(many: int = 4096) -> list[float]:
    from statistics import NormalDist

    normal = NormalDist()
    # Rounded to microseconds, so that the last bit of a library's exponential decides nothing.
    return [round(MEDIAN_S * math.exp(SIGMA * normal.inv_cdf((i + 0.5) / many)), 6) for i in range(many)]


_DELAYS = _quantiles()
_SAMPLE: dict[str, Callable[[Randomness], Any]] = {
    "int": lambda r: r.below(1000),
    "float": lambda r: r.below(1000) / 8,
    "str": lambda r: f"s{r.below(100)}",
    "bytes": lambda r: bytes([r.below(256)]),
    "bool": lambda r: bool(r.below(2)),
    "json": lambda r: {"n": r.below(10)},
}


def sample(kind: str, randomness: Randomness) -> Any:
    """A value of a payload type."""
    if kind.endswith("[]"):
        return [sample(kind[:-2], randomness) for _ in range(randomness.below(3))]
    return _SAMPLE[kind](randomness)


async def role(session: Session, randomness: Randomness, distances: list[int], record: Record) -> None:
    """Follows one endpoint to its end."""
    steps = 0
    while not session.ended:
        row = session.table.states[session.state]
        sends = [step for step in row.steps if step.send]
        heard = None
        if sends:
            wait = randomness.patience_s()
            if len(sends) == len(row.steps):
                await asyncio.sleep(wait)
            else:
                heard = await _within(session, wait)
        else:
            heard = await session.receive()
        if sends and heard is None:
            near = min(distances[step.target] for step in sends)
            open_to = sends if steps < ENOUGH else [step for step in sends if distances[step.target] == near]
            step = open_to[randomness.below(len(open_to))]
            await session.send(step, tuple(sample(kind, randomness) for kind in step.types))
            record.note(session, step)
        elif heard is not None:
            record.note(session, heard[0])
            if heard[1].tags != tuple((k, session.instances.counts[k], side) for k, side in heard[0].path):
                raise ProtocolError(f'mistaken: {session.table.role} took "{heard[1].label}" of another instance or side for a new one')
        steps += 1
        if steps > MOST_STEPS:
            raise ProtocolError("unended")


async def _within(session: Session, seconds: float) -> tuple[Step, Message] | None:
    found = session.look()
    if found is not None:
        return found
    try:
        async with asyncio.timeout(seconds):
            return await session.receive()
    except TimeoutError:
        return None


@dataclass
class Record:
    """What happened: messages by label, the side that each role holds of each instance, and where somebody spoke tentatively."""

    labels: Counter[str] = field(default_factory=Counter)
    sides: dict[tuple[int, ...], dict[str, str]] = field(default_factory=dict)
    spoken: set[tuple[int, ...]] = field(default_factory=set)

    def note(self, session: Session, step: Step) -> None:
        """A role took a step."""
        if step.send:
            self.labels[step.label] += 1
        instance: tuple[int, ...] = ()
        for k, side in step.decides:
            instance = (*instance, k, session.instances.counts[k])
            self.sides.setdefault(instance, {})[session.table.role] = side or "tentative"
            if side is None and step.send:
                self.spoken.add(instance)


def play(
    system: Machines, seeds: Sequence[int], *, monitored: bool = False, reorder: bool = False, tables: Sequence[Table] | None = None
) -> list[Ended]:
    """One session per seed; messages carry tags if the system says so."""
    made = list(tables) if tables is not None else [table_of(machine) for machine in system.machines]
    distances = [machine.distances() for machine in system.machines]
    loop = virtual_time.VirtualLoop()
    try:
        return [_one(system, made, distances, seed, monitored, reorder, loop) for seed in seeds]
    finally:
        loop.close()


def _one(
    system: Machines, tables: list[Table], distances: list[list[int]], seed: int, monitored: bool, reorder: bool,
    loop: virtual_time.VirtualLoop,
) -> Ended:  # fmt: skip
    randomness = Randomness(seed)
    network = Delayed(system.roles, randomness.delay_s, reorder=reorder)
    record = Record()
    sessions: list[Session] = []
    for table in tables:
        transport = network.of(table.role)
        # Tags are always carried, so that it can be seen when a message is mistaken for another; only tagged sessions look at them.
        make = Monitored.session if monitored else Session
        sessions.append(make(table, transport, tags=system.tags, carry=True))

    async def all_roles() -> None:
        async with asyncio.TaskGroup() as group:
            for session, far in zip(sessions, distances):
                group.create_task(role(session, randomness, far, record))

    how, said = "agreement", ""
    try:
        virtual_time.run(all_roles(), loop)
    except virtual_time.Stuck:
        how = "stuck"
    except BaseExceptionGroup as several:
        first = several.exceptions[0]
        if not isinstance(first, ProtocolError | Broken):
            raise
        said = str(first)
        how = "violation" if isinstance(first, Broken) else said if said == "unended" else said.partition(":")[0]
        how = how if how in ("violation", "unended", "mistaken") else "unexpected"
    return _judged(system, sessions, record, how, said)


def _judged(system: Machines, sessions: list[Session], record: Record, how: str, said: str) -> Ended:
    races = agreed = 0
    split = False
    for instance, held in record.sides.items():
        decided = {side for side in held.values() if side != "tentative"}
        split |= len(decided) > 1
        if held.get(system.observers.get(instance[-2], "")) == "right" and instance in record.spoken:
            races += 1
            agreed += decided == {"right"} and "tentative" not in held.values() and how in ("agreement", "unended")
    if split and how == "agreement":
        how = "disagreement"
    discarded = sum(session.discarded for session in sessions)
    return Ended(how, sum(record.labels.values()), discarded, record.labels, races, agreed, said)
