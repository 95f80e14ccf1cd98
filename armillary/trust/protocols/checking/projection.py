"""Projection: what a protocol means for one role.

A state of the role's machine is a set of places in the protocol at which the role may be as far as it can know. Steps of others move it
silently; its own steps are the union over the places, so receives of merged branches are joined and merged further (full merge). A
place remembers which mixed choices the role has entered, in which of them it is still tentative (then the observer's first messages of
the right side interrupt it, wherever it is), and in which it has decided right without having seen the acknowledgement (then the
other's tentative messages are thrown away).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from armillary.errors import InputError

from ..language.protocol import RIGHT, Interaction, Mixed, Protocol, Side, targets
from .machine import Machine, Machines, State, Step

#: States that a role's machine may have, and places that may be looked at for all of them.
MOST_STATES, MOST_PLACES = 20_000, 200_000


@dataclass(frozen=True)
class Position:
    """A node, and the mixed choices around it that the role has entered, holds tentatively, or decided without acknowledgement."""

    node: int
    entered: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    unacknowledged: frozenset[int] = frozenset()


#: A step without its target, and the place that it leads to.
Move = tuple[Step, Position]


@dataclass
class Projected:
    """A machine, and for each of its states the places that it stands for; `conflicts` are faults of merging, (state, message)."""

    machine: Machine
    places: list[frozenset[Position]] = field(default_factory=list)
    #: Labels that the role sends tentatively, by mixed choice.
    tentative: dict[int, set[str]] = field(default_factory=dict)


class Projection:
    """Projects one role."""

    def __init__(self, protocol: Protocol, role: str, *, interrupts: bool = True) -> None:
        self.protocol = protocol
        self.role = role
        self.interrupts = interrupts
        self.mixes = protocol.mixes
        #: Nodes behind which the role may still act; a loop of others that never comes to it is an end for it.
        self.ahead = acting_ahead(protocol, role)
        self.looked_at = 0

    def run(self, tentative: dict[int, set[str]] | None = None) -> Projected:
        """The machine. `tentative` are the labels that observers throw away, by mixed choice."""
        first = self.closure([Position(0)])
        numbers: dict[frozenset[Position], int] = {first: 0}
        order, states = [first], []
        said: dict[int, set[str]] = {}
        for places in order:
            leads: dict[Step, set[Position]] = {}
            for place in places:
                for step, to in self.moves(place):
                    leads.setdefault(step, set()).add(to)
                    if step.send:
                        for k in to.pending:
                            if self.mixes[k].observer == step.peer:
                                said.setdefault(k, set()).add(step.label)
            steps = []
            for step, reached in leads.items():
                target = self.closure(reached)
                if target not in numbers:
                    if len(order) >= MOST_STATES:
                        raise InputError(f"found more than {MOST_STATES:,} states of role {self.role}; expected fewer")
                    numbers[target] = len(order)
                    order.append(target)
                steps.append(_to(step, numbers[target]))
            # Where it may have ended or hear more, it waits; `merge` refuses that.
            ended = not steps and any(self.over(place) for place in places)
            states.append(State(tuple(sorted(steps, key=_order)), ended, self.discards(places, tentative or {})))
        return Projected(Machine(self.role, tuple(states)), order, said)

    def discards(self, places: Iterable[Position], tentative: dict[int, set[str]]) -> frozenset[tuple[str, str]]:
        stale = {k for place in places for k in place.unacknowledged}
        return frozenset((self.mixes[k].tentative, label) for k in stale for label in tentative.get(k, ()))

    def closure(self, places: Iterable[Position]) -> frozenset[Position]:
        """These places and those that others' steps can move them to."""
        found = set(places)
        waiting = list(found)
        while waiting:
            at = waiting.pop()
            for place in self.silent(at):
                if place not in found:
                    found.add(place)
                    waiting.append(place)
                    self.looked_at += 1
                    if self.looked_at > MOST_PLACES:
                        raise InputError(f"found more than {MOST_PLACES:,} places at which role {self.role} may be; expected fewer")
        # A place that only others can leave says nothing about what the role may do.
        return frozenset(place for place in found if self.acts(place))

    def acts(self, place: Position) -> bool:
        node = self.protocol.nodes[place.node]
        if self.over(place) or place.unacknowledged or (self.interrupts and place.pending):
            return True
        return isinstance(node, Interaction) and self.role in (node.sender, node.receiver)

    def over(self, place: Position) -> bool:
        """Whether the role has nothing left to do."""
        return place.node not in self.ahead

    def silent(self, place: Position) -> Iterable[Position]:
        node = self.protocol.nodes[place.node]
        if isinstance(node, Mixed):
            left = self.at(node.left, place.entered, place.pending, place.unacknowledged)
            if node.tentative == self.role:
                left = Position(left.node, left.entered, left.pending | {node.k}, left.unacknowledged)
            yield left
            yield self.at(node.right, place.entered, place.pending, place.unacknowledged)
        elif isinstance(node, Interaction) and self.role not in (node.sender, node.receiver):
            for branch in node.branches:
                yield self.at(branch.target, place.entered, place.pending, place.unacknowledged)

    def at(self, node: int, *marks: frozenset[int]) -> Position:
        """The place at a node: what stands outside of a mixed choice has left it."""
        around = {k for k, _ in self.protocol.nodes[node].inside}
        return Position(node, *(mark & around for mark in marks))

    def moves(self, place: Position) -> Iterable[Move]:
        node = self.protocol.nodes[place.node]
        if isinstance(node, Interaction) and self.role == node.sender:
            yield from self.said(place, node)
        elif isinstance(node, Interaction) and self.role == node.receiver:
            yield from self.heard(place, node, interrupt=False)
        if self.interrupts:
            for k in place.pending:
                right = self.protocol.nodes[self.mixes[k].right]
                if isinstance(right, Interaction) and right.receiver == self.role:
                    yield from self.heard(place, right, interrupt=k in place.entered)

    def said(self, place: Position, node: Interaction) -> Iterable[Move]:
        around = {k for k, _ in node.inside}
        unacknowledged = place.unacknowledged | {
            k for k, side in node.inside if side == RIGHT and k not in place.entered and self.mixes[k].observer == self.role
        }
        decides = self.decided(node.inside, place.pending)
        for branch in node.branches:
            to = self.at(branch.target, place.entered | around, place.pending, unacknowledged)
            fresh = frozenset(around - place.entered)
            yield Step(True, node.receiver, branch.label, branch.payload, 0, node.inside, fresh, decides), to

    def heard(self, place: Position, node: Interaction, *, interrupt: bool) -> Iterable[Move]:
        around = {k for k, _ in node.inside}
        pending = place.pending - around
        acknowledged = {k for k, side in node.inside if side == RIGHT and self.mixes[k].tentative == node.sender}
        # Whoever is interrupted has left every choice that it began inside the one that is decided now.
        entered, fresh = (place.entered & around) | around, frozenset(around - place.entered)
        for branch in node.branches:
            to = self.at(branch.target, entered, pending & around, (place.unacknowledged & around) - acknowledged)
            step = Step(
                False, node.sender, branch.label, branch.payload, 0, node.inside, fresh, self.decided(node.inside, pending), interrupt
            )
            yield step, to

    def decided(self, inside: tuple[Side, ...], pending: frozenset[int]) -> tuple[tuple[int, str | None], ...]:
        return tuple((k, None if k in pending else side) for k, side in inside)


def acting_ahead(protocol: Protocol, role: str) -> frozenset[int]:
    """The nodes at or behind which a role acts."""
    before: dict[int, list[int]] = {}
    for at, node in enumerate(protocol.nodes):
        for target in targets(node):
            before.setdefault(target, []).append(at)
    nodes = enumerate(protocol.nodes)
    waiting = [at for at, node in nodes if isinstance(node, Interaction) and role in (node.sender, node.receiver)]
    found = set(waiting)
    while waiting:
        for at in before.get(waiting.pop(), ()):
            if at not in found:
                found.add(at)
                waiting.append(at)
    return frozenset(found)


def project(protocol: Protocol, role: str, *, interrupts: bool = True) -> Machine:
    """The machine of one role."""
    said: dict[int, set[str]] = {}
    for other in {mixed.tentative for mixed in protocol.mixes.values()}:
        said.update(Projection(protocol, other).run().tentative)
    return Projection(protocol, role, interrupts=interrupts).run(said).machine


def projected(protocol: Protocol, *, interrupts: bool = True) -> dict[str, Projected]:
    """Every role's machine with the places that its states stand for; interrupts are left out only to show what they are for."""
    roles = [role for role in protocol.roles if role in protocol.acting()]
    first = {role: Projection(protocol, role, interrupts=interrupts).run() for role in roles}
    said: dict[int, set[str]] = {}
    for found in first.values():
        said.update(found.tentative)
    observers = {mixed.observer for mixed in protocol.mixes.values()}
    again = {role: Projection(protocol, role, interrupts=interrupts).run(said) for role in roles if role in observers}
    return {**first, **again}


def machines_of(protocol: Protocol, *, tags: bool = False) -> Machines:
    """The whole system."""
    return system_of(protocol, projected(protocol), tags=tags)


def system_of(protocol: Protocol, parts: dict[str, Projected], *, tags: bool) -> Machines:
    """The projected machines as a system."""
    observers = {k: mixed.observer for k, mixed in protocol.mixes.items()}
    return Machines(tuple(one.machine for one in parts.values()), tags, protocol.name, observers)


def _to(step: Step, target: int) -> Step:
    return Step(step.send, step.peer, step.label, step.payload, target, step.path, step.fresh, step.decides, step.interrupt)


def _order(step: Step) -> tuple[bool, str, str, tuple[Side, ...], int]:
    return not step.send, step.peer, step.label, step.path, step.target
