"""A system of machines made ready for exploration: roles, pairs, messages and what a role does with each, as numbers.

A configuration is a tuple of whole numbers: for each role the number of what it knows (state, how often it entered each mixed choice,
which side it holds), and for each ordered pair of roles the number of its queue. Every distinct one of either is kept once.

Instances are counted relative to the least that anybody can still speak of, so a loop comes back to where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..checking.machine import Machine, Machines, Step
from ..endpoints.session import Ahead
from ..language.protocol import Side

Config = tuple[int, ...]
#: The instance of a message that is stale.
OVER = -9


class Local(NamedTuple):
    """What a role knows: its state, the instance that it is in of each mixed choice, and the side that it holds there."""

    state: int
    counts: tuple[int, ...]
    sides: tuple[str | None, ...]


class Letter(NamedTuple):
    """A message in a queue: its label, where it stands in the protocol, and the instance of each mixed choice around it."""

    label: str
    path: tuple[Side, ...]
    instances: tuple[int, ...]


class Reaction(NamedTuple):
    """What a role can do with the message at the head of a queue."""

    #: (step, new local) of each receive, or (None, same local) for throwing it away.
    outcomes: tuple[tuple[Step | None, int], ...]
    #: What is wrong with it, or "".
    fault: str


@dataclass(frozen=True)
class Move:
    """One step of the system: who did what with which message."""

    role: str
    kind: str  # "send", "receive" or "discard"
    peer: str
    label: str

    def __str__(self) -> str:
        verb = {"send": "sends", "receive": "receives", "discard": "throws away"}[self.kind]
        return f'{self.role} {verb} "{self.label}" {"to" if self.kind == "send" else "from"} {self.peer}'


@dataclass
class System:
    """Machines and tables that grow as configurations are met."""

    machines: Machines
    bound: int = 4
    locals: list[Local] = field(default_factory=list)
    queues: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    letters: list[Letter] = field(default_factory=list)

    def __post_init__(self) -> None:
        roles = self.machines.roles
        self.roles = roles
        self.parts: tuple[Machine, ...] = self.machines.machines
        self.tags = self.machines.tags
        number = {role: i for i, role in enumerate(roles)}
        used = {(i, number[s.peer]) for i, m in enumerate(self.parts) for state in m.states for s in state.steps if s.send}
        used |= {(number[s.peer], i) for i, m in enumerate(self.parts) for state in m.states for s in state.steps if not s.send}
        #: Ordered pairs of roles, each with a queue.
        self.pairs = sorted(used)
        self.pair_at = {pair: len(roles) + i for i, pair in enumerate(self.pairs)}
        self.inbound = [[(self.pair_at[a, b], a) for a, b in self.pairs if b == i] for i in range(len(roles))]
        self.number = number
        self.mixes = sorted({k for m in self.parts for s in m.states for step in s.steps for k, _ in step.path})
        self.slot = {k: i for i, k in enumerate(self.mixes)}
        self.around = enclosing(self.machines)
        self.within = {k: [other for other in self.mixes if k in self.around[other]] for k in self.mixes}
        self._local_ids: dict[tuple[int, Local], int] = {}
        self._queue_ids: dict[tuple[int, ...], int] = {(): 0}
        self._letter_ids: dict[Letter, int] = {}
        self._sends: dict[int, tuple[tuple[int, int, int, bool, Step], ...]] = {}
        self._reactions: dict[tuple[int, int, int], Reaction] = {}
        self._pushed: dict[tuple[int, int], int] = {}
        self.later = [_receivable(machine) for machine in self.parts]
        self.speaks = [_speaking(machine, self.slot) for machine in self.parts]
        counts, sides = (0,) * len(self.mixes), (None,) * len(self.mixes)
        self.first: Config = tuple([self.local(i, Local(0, counts, sides)) for i in range(len(roles))] + [0] * len(self.pairs))

    # Every local knows its role, so that equal ones of two roles have two numbers.
    def local(self, role: int, what: Local) -> int:
        """The number of what a role knows."""
        key = (role, what)
        found = self._local_ids.get(key)
        if found is None:
            found = self._local_ids[key] = len(self.locals)
            self.locals.append(what)
        return found

    def queue(self, letters: tuple[int, ...]) -> int:
        """The number of a queue."""
        found = self._queue_ids.get(letters)
        if found is None:
            found = self._queue_ids[letters] = len(self.queues)
            self.queues.append(letters)
        return found

    def letter(self, what: Letter) -> int:
        """The number of a message."""
        found = self._letter_ids.get(what)
        if found is None:
            found = self._letter_ids[what] = len(self.letters)
            self.letters.append(what)
        return found

    def taken(self, role: int, at: Local, step: Step) -> int:
        """What a role knows after a step."""
        if not step.path:
            return self.local(role, Local(step.target, at.counts, at.sides))
        counts, sides = list(at.counts), list(at.sides)
        for k, _ in step.path:
            if k in step.fresh:
                counts[self.slot[k]] += 1
                # What stands inside is counted anew, because a role that was interrupted entered it and others did not.
                for inner in self.within[k]:
                    counts[self.slot[inner]], sides[self.slot[inner]] = 0, None
        for k, side in step.decides:
            sides[self.slot[k]] = side
        return self.local(role, Local(step.target, tuple(counts), tuple(sides)))

    def sends(self, role: int, local: int) -> tuple[tuple[int, int, int, bool, Step], ...]:
        """What a role can send: (place of the queue, message, local after it, whether an instance begins, step)."""
        found = self._sends.get(local)
        if found is None:
            at = self.locals[local]
            made = []
            for step in self.parts[role].states[at.state].sends:
                after = self.taken(role, at, step)
                instances = tuple(self.locals[after].counts[self.slot[k]] for k, _ in step.path)
                letter = self.letter(Letter(step.label, step.path, instances))
                made.append((self.pair_at[role, self.number[step.peer]], letter, after, bool(step.fresh), step))
            found = self._sends[local] = tuple(made)
        return found

    def pushed(self, queue: int, letter: int) -> int:
        """The queue with one more message."""
        found = self._pushed.get((queue, letter))
        if found is None:
            found = self._pushed[queue, letter] = self.queue((*self.queues[queue], letter))
        return found

    def stale(self, at: Local, letter: Letter) -> bool:
        """Whether a message belongs to an instance that is over, or to the side that was not taken."""
        for (k, side), instance in zip(letter.path, letter.instances):
            now, held = at.counts[self.slot[k]], at.sides[self.slot[k]]
            if instance < now or (instance == now and held is not None and held != side):
                return True
            if instance > now:
                return False
        return False

    def reaction(self, role: int, local: int, place: int, sender: int, letter: int) -> Reaction:
        """What a role does with the message at the head of a queue."""
        found = self._reactions.get((local, place, letter))
        if found is None:
            found = self._reactions[local, place, letter] = self._react(role, local, self.roles[sender], self.letters[letter])
        return found

    def _react(self, role: int, local: int, sender: str, letter: Letter) -> Reaction:
        at = self.locals[local]
        state = self.parts[role].states[at.state]
        fits = [step for step in state.receives if step.peer == sender and step.label == letter.label]
        stale = self.stale(at, letter)
        if self.tags:
            if stale:
                return Reaction(((None, local),), "")
            now = [step for step in fits if self._matches(at, step, letter)]
            if now:
                return Reaction(tuple((step, self.taken(role, at, step)) for step in now), "")
        elif fits:
            wrong = [step for step in fits if not self._matches(at, step, letter)]
            outcomes = tuple((step, self.taken(role, at, step)) for step in fits)
            return Reaction(outcomes, "takes a stale or foreign message for a new one" if wrong else "")
        elif (sender, letter.label) in state.discards:
            return Reaction(((None, local),), "" if stale else "throws a message away that is not stale")
        if self.later[role].has(at.state, (sender, letter.label)):
            return Reaction((), "")
        return Reaction((), "can never receive the message at the head of the queue")

    def _matches(self, at: Local, step: Step, letter: Letter) -> bool:
        if step.path != letter.path:
            return False
        fresh: set[int] = set()
        for (k, _), n in zip(letter.path, letter.instances):
            now = 0 if self.around[k] & fresh else at.counts[self.slot[k]]
            if n != now + (k in step.fresh):
                return False
            if k in step.fresh:
                fresh.add(k)
        return True

    def settled(self, config: Config) -> Config:
        """The same configuration with instances counted from the least that matters, and those of stale messages forgotten."""
        roles = len(self.roles)
        queues = []
        for (_, receiver), queue in zip(self.pairs, config[roles:]):
            at = self.locals[config[receiver]]
            queues.append([self._forgotten(at, self.letters[letter]) for letter in self.queues[queue]])
        held = [self.locals[config[i]] for i in range(roles)]
        shift = {}
        for slot, k in enumerate(self.mixes):
            if self.around[k] and not self._together(k, held, queues):
                shift[k] = 0
                continue
            lows = [at.counts[slot] for i, at in enumerate(held) if self.speaks[i][at.state] >> slot & 1]
            lows += [
                n for letters in queues for one in letters for (other, _), n in zip(one.path, one.instances) if other == k and n != OVER
            ]
            shift[k] = min(lows) if lows else max(at.counts[slot] for at in held)
        moved = []
        for i in range(roles):
            at = self.locals[config[i]]
            counts = tuple(max(-1, count - shift[k]) for k, count in zip(self.mixes, at.counts))
            moved.append(self.local(i, Local(at.state, counts, at.sides)))
        moved += [self.queue(tuple(self.letter(_less(letter, shift)) for letter in letters)) for letters in queues]
        return tuple(moved)

    def _together(self, k: int, held: list[Local], queues: list[list[Letter]]) -> bool:
        """Whether all that is said of an inner choice belongs to one instance of each choice around it."""
        slot = self.slot[k]
        seen = {tuple(at.counts[self.slot[o]] for o in self.around[k]) for i, at in enumerate(held) if self.speaks[i][at.state] >> slot & 1}
        for letters in queues:
            for one in letters:
                counts = {other: n for (other, _), n in zip(one.path, one.instances) if n != OVER}
                if k in counts:
                    seen.add(tuple(counts[o] for o in self.around[k]))
        return len(seen) == 1

    def _forgotten(self, at: Local, letter: Letter) -> Letter:
        # What is stale stays stale, so it does not matter since when.
        return Letter(letter.label, letter.path, (OVER,) * len(letter.path)) if self.stale(at, letter) else letter

    def agrees(self, config: Config) -> bool:
        """Whether nobody holds another side of the same instance, and no stale message is left."""
        roles = len(self.roles)
        held: dict[tuple[int, ...], str] = {}
        for i in range(roles):
            at = self.locals[config[i]]
            for slot, side in enumerate(at.sides):
                if side is not None and at.counts[slot] >= 0:
                    instance = (slot, at.counts[slot], *(at.counts[self.slot[o]] for o in sorted(self.around[self.mixes[slot]])))
                    if held.setdefault(instance, side) != side:
                        return False
        for (_, receiver), queue in zip(self.pairs, config[roles:]):
            if queue and any(self.stale(self.locals[config[receiver]], self.letters[letter]) for letter in self.queues[queue]):
                return False
        return True


def enclosing(system: Machines) -> dict[int, frozenset[int]]:
    """The mixed choices around each mixed choice."""
    found: dict[int, frozenset[int]] = {}
    for machine in system.machines:
        for state in machine.states:
            for step in state.steps:
                names = [k for k, _ in step.path]
                found.update({k: frozenset(names[:i]) for i, k in enumerate(names)})
    return found


def _less(letter: Letter, shift: dict[int, int]) -> Letter:
    less = tuple(n if n == OVER else n - shift[k] for (k, _), n in zip(letter.path, letter.instances))
    return Letter(letter.label, letter.path, less)


def _receivable(machine: Machine) -> Ahead[tuple[str, str]]:
    """What can still be received or thrown away from a state on."""
    here = [{(s.peer, s.label) for s in state.receives} | state.discards for state in machine.states]
    return Ahead(here, [[step.target for step in state.steps] for state in machine.states])


def _speaking(machine: Machine, slot: dict[int, int]) -> list[int]:
    """For each state the slots, as bits, of the mixed choices in which the role may still say or hear something."""
    found = [0] * len(machine.states)
    before: list[list[int]] = [[] for _ in machine.states]
    for i, state in enumerate(machine.states):
        for step in state.steps:
            before[step.target].append(i)
            for k, _ in step.path:
                found[i] |= 1 << slot[k]
    waiting = list(range(len(found)))
    while waiting:
        at = waiting.pop()
        for i in before[at]:
            if found[at] | found[i] != found[i]:
                found[i] |= found[at]
                waiting.append(i)
    return found
