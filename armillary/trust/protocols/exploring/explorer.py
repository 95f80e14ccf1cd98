"""Exhaustive exploration: every configuration that a system can reach while no queue holds more than a bound.

Breadth first, so that a counterexample is as short as can be. Three things are wrong: *safety*, a message that its receiver can never
receive or throw away, or that it takes for another one; *progress*, a configuration in which nobody can move and somebody is not done;
*agreement*, a configuration from which none can be reached in which all hold the same side of every instance and nothing stale is left.

Where nobody can move because queues are full, larger queues might help, so the search begins again with twice the bound, a few times.

Partial-order reduction: where some role waits for one sender only and its message has come, or can only send and has room, that role's
steps alone are a persistent set, because nobody else can disable or overtake them. It is not used where it would close a cycle, so
that no other role waits for ever. Agreement is looked at in the reduced graph, and again in the whole one before it is denied.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..checking.machine import Machines
from .system import Config, Move, System

#: A configuration, whether an instance began on the way to it, and the step: role, step (None for throwing away), queue, message.
Successor = tuple[Config, bool, tuple[int, Any, int, int]]
#: Configurations after which an exploration gives up, unless told otherwise.
MOST = 1_000_000
#: Numbers that all configurations may have together, and steps between them: a configuration has one for each role and pair of roles.
MOST_NUMBERS = 1 << 27
#: How often queues are doubled where all wait for room.
DOUBLINGS = 3


@dataclass(frozen=True)
class Counterexample:
    """What went wrong, and the steps that lead there."""

    #: "safety", "progress" or "agreement".
    kind: str
    role: str
    message: str
    trace: tuple[Move, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.role} {self.message} after {len(self.trace)} steps"


@dataclass(frozen=True)
class Explored:
    """What an exploration found; `complete` is false where it gave up, `blocked` counts configurations in which a send waited for room.

    `bound` is the one that was looked at last: more than was asked for where all waited for room.
    """

    configurations: int
    steps: int
    complete: bool
    blocked: int
    counterexample: Counterexample | None
    cpu_s: float
    bound: int = 0

    @property
    def sound(self) -> bool:
        """Whether everything was seen and nothing was wrong."""
        return self.complete and self.counterexample is None


def explore_machines(system: Machines, *, bound: int = 4, most: int = MOST, reduce: bool = True) -> Explored:
    """All configurations with at most `bound` messages per queue; at most `most` of them."""
    if bound < 1 or most < 1:
        raise InputError(f"found bound {bound} and most {most}; expected at least 1")
    began = time.process_time()
    for doubling in range(DOUBLINGS + 1):
        search = Search(System(system, bound << doubling), most, reduce)
        found = search.run()
        if found is not None and found.kind == "agreement" and reduce:
            search = Search(System(system, bound << doubling), most, False)
            found = search.run()
        if found is None or not search.jammed:
            break
    spent = time.process_time() - began
    return Explored(len(search.order), len(search.edges), search.complete, search.blocked, found, spent, search.system.bound)


class Search:
    """The reachable configurations in the order in which they were met."""

    def __init__(self, system: System, most: int, reduce: bool) -> None:
        self.system = system
        self.most = min(most, MOST_NUMBERS // max(1, len(system.first)))
        self.reduce = reduce
        self.complete = True
        self.blocked = 0
        #: Whether what was found is that all wait for room in queues.
        self.jammed = False
        self.order: list[Config] = [system.first]
        self.numbers: dict[Config, int] = {system.first: 0}
        #: The configuration before each, and the step from there.
        self.parent = array("q", [-1])
        self.by: list[tuple[int, Any, int, int]] = [(0, None, 0, 0)]
        #: Edges as targets, and where those of each configuration begin.
        self.edges = array("q")
        self.begins = array("q")

    def run(self) -> Counterexample | None:
        """Explores; returns the first thing that is wrong."""
        at = 0
        while at < len(self.order):
            config = self.order[at]
            self.begins.append(len(self.edges))
            fault = self.expand(at, config)
            if fault is not None:
                return fault
            if not self.complete:
                return None
            at += 1
        self.begins.append(len(self.edges))
        return self.disagreement()

    def expand(self, at: int, config: Config) -> Counterexample | None:
        system = self.system
        roles = len(system.roles)
        moves: list[Successor] = []
        chosen: list[Successor] | None = None
        full = False
        for role in range(roles):
            local = config[role]
            mine: list[Successor] = []
            open_sends = True
            sends = system.sends(role, local)
            for place, letter, after, fresh, step in sends:
                queue = config[place]
                if len(system.queues[queue]) >= system.bound:
                    full, open_sends = True, False
                    continue
                mine.append((_with(config, role, after, place, system.pushed(queue, letter)), fresh, (role, step, place, letter)))
            for place, sender in system.inbound[role]:
                queue = config[place]
                if not queue:
                    continue
                head = system.queues[queue][0]
                reaction = system.reaction(role, local, place, sender, head)
                if reaction.fault:
                    text = f'{reaction.fault}: "{system.letters[head].label}" from {system.roles[sender]}'
                    return Counterexample("safety", system.roles[role], text, self.trace(at))
                if reaction.outcomes:
                    rest = system.queue(system.queues[queue][1:])
                    for taken, after in reaction.outcomes:
                        fresh = taken is not None and bool(taken.fresh)
                        mine.append((_with(config, role, after, place, rest), fresh, (role, taken, place, head)))
            if mine and self.reduce and chosen is None:
                chosen = self.persistent(role, local, mine, bool(sends) and open_sends)
            moves += mine
        self.blocked += full
        if not moves:
            return self.stuck(at, config, full)
        settled = [(system.settled(to) if fresh else to, by) for to, fresh, by in (chosen or moves)]
        if chosen is not None and any(to in self.numbers for to, _ in settled):
            settled = [(system.settled(to) if fresh else to, by) for to, fresh, by in moves]
        for to, by in settled:
            number = self.numbers.get(to)
            if number is None:
                if len(self.order) >= self.most or len(self.edges) >= MOST_NUMBERS:
                    self.complete = False
                    return None
                number = self.numbers[to] = len(self.order)
                self.order.append(to)
                self.parent.append(at)
                self.by.append(by)
            self.edges.append(number)
        return None

    def persistent(self, role: int, local: int, mine: list[Successor], open_sends: bool) -> list[Successor] | None:
        """Some of a role's steps that nobody else can disable and that commute with everything else, if there are such."""
        state = self.system.parts[role].states[self.system.locals[local].state]
        quiet = self.system.tags or not state.discards
        if open_sends and not state.receives and quiet:
            # What is stale stays so, and can be thrown away afterwards.
            return [one for one in mine if one[2][1] is not None and one[2][1].send]
        peers = {step.peer for step in state.receives} | {peer for peer, _ in state.discards}
        if state.sends or len(peers) != 1:
            return None
        place = self.system.pair_at[self.system.number[next(iter(peers))], role]
        return [one for one in mine if one[2][2] == place] or None

    def stuck(self, at: int, config: Config, full: bool) -> Counterexample | None:
        system = self.system
        self.jammed = full
        for role, name in enumerate(system.roles):
            state = system.parts[role].states[system.locals[config[role]].state]
            if state.steps and not state.ended:
                waits = " or ".join(sorted({str(step) for step in state.steps})[:3])
                room = f", also with queues of {system.bound}" if full else ""
                return Counterexample("progress", name, f"waits for ever ({waits}{room})", self.trace(at))
        for place, (sender, receiver) in enumerate(system.pairs, len(system.roles)):
            if config[place]:
                label = system.letters[system.queues[config[place]][0]].label
                text = f'has ended while "{label}" from {system.roles[sender]} is still to come'
                return Counterexample("progress", system.roles[receiver], text, self.trace(at))
        return None

    def disagreement(self) -> Counterexample | None:
        """A configuration from which no agreement can be reached."""
        good = np.fromiter((self.system.agrees(config) for config in self.order), bool, len(self.order))
        if good.all():
            return None
        reached = backwards(np.array(self.begins), np.array(self.edges), good)
        if reached.all():
            return None
        at = int(np.argmin(reached))
        return Counterexample("agreement", self.system.roles[0], "and the others can never come to hold the same sides", self.trace(at))

    def trace(self, at: int) -> tuple[Move, ...]:
        """The steps to a configuration."""
        found = []
        while at > 0:
            found.append(self.move(*self.by[at]))
            at = self.parent[at]
        return tuple(reversed(found))

    def move(self, role: int, step: Any, place: int, letter: int) -> Move:
        system = self.system
        sender, receiver = system.pairs[place - len(system.roles)]
        kind = "discard" if step is None else "send" if step.send else "receive"
        peer = receiver if kind == "send" else sender
        return Move(system.roles[role], kind, system.roles[peer], system.letters[letter].label)


def _with(config: Config, role: int, after: int, place: int, queue: int) -> Config:
    changed = list(config)
    changed[role] = after
    changed[place] = queue
    return tuple(changed)


def backwards(begins: np.ndarray, edges: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Which nodes reach a good one, along edges that are kept by their sources."""
    from scipy.sparse import csr_matrix

    count = len(good)
    graph = csr_matrix((np.ones(len(edges), np.int8), edges, begins), (count, count))
    back = graph.T.tocsr()
    reached = good.copy()
    frontier = np.flatnonzero(good)
    while len(frontier):
        parts = [back.indices[back.indptr[i] : back.indptr[i + 1]] for i in frontier.tolist()]
        new = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        frontier = new[~reached[new]]
        reached[frontier] = True
    return reached
