"""A protocol as a graph: who says what to whom, and where two may start at once.

    G ::= p→q:{l_i(S_i).G_i} | μt.G | t | end | mix^k(p ▷ o){G_L ; G_R}

Recursion is an edge back, so every analysis is a walk over nodes. Each node knows inside which sides of which mixed choices it stands;
a jump to a node that stands outside of one leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from armillary.errors import InputError, unknown
from armillary.files import read_text

from .grammar import Block, Call, Choice, Continue, Definition, Field, MixedChoice, Recursion, parse
from .tokens import MOST_BYTES, MOST_NESTING, Place

LEFT, RIGHT = "left", "right"
#: Nodes that a protocol may have once its sub-protocols stand in their places.
MOST_NODES = 20_000
#: Mixed choices that a protocol may have.
MOST_MIXES = 256
#: A mixed choice and one of its sides.
Side = tuple[int, str]


@dataclass(frozen=True)
class Branch:
    """One message of an interaction, and the node that follows it."""

    label: str
    payload: tuple[Field, ...]
    target: int
    place: Place


@dataclass(frozen=True)
class Interaction:
    """`sender` says one of the labels to `receiver`."""

    sender: str
    receiver: str
    branches: tuple[Branch, ...]
    inside: tuple[Side, ...]
    place: Place


@dataclass(frozen=True)
class Mixed:
    """Construct `k`: `tentative` may start the left side while `observer` may start the right one; the observer decides."""

    k: int
    tentative: str
    observer: str
    left: int
    right: int
    inside: tuple[Side, ...]
    place: Place


@dataclass(frozen=True)
class End:
    """Nothing more happens."""

    inside: tuple[Side, ...]
    place: Place


Node = Interaction | Mixed | End


@dataclass(frozen=True)
class Protocol:
    """A protocol: its roles, and its nodes from `nodes[0]` on."""

    name: str
    roles: tuple[str, ...]
    nodes: tuple[Node, ...]
    file: str = "protocol"
    text: str = ""

    @property
    def mixes(self) -> dict[int, Mixed]:
        """The mixed choices by number."""
        return {node.k: node for node in self.nodes if isinstance(node, Mixed)}

    def interactions(self) -> Iterator[Interaction]:
        """All interactions in the order of the file."""
        return (node for node in self.nodes if isinstance(node, Interaction))

    def acting(self) -> set[str]:
        """The roles that send or receive anything."""
        return {role for node in self.interactions() for role in (node.sender, node.receiver)}

    def where(self, place: Place) -> str:
        """`file:line` for messages."""
        return f"{self.file}:{place.line}"


def targets(node: Node) -> tuple[int, ...]:
    """The nodes that may follow."""
    if isinstance(node, Interaction):
        return tuple(branch.target for branch in node.branches)
    return (node.left, node.right) if isinstance(node, Mixed) else ()


def load(path: str | Path, name: str = "") -> Protocol:
    """The first protocol of a `.mst` file, or the one called `name`."""
    return loads(read_text(path, limit=MOST_BYTES), name, file=str(path))


def loads(text: str, name: str = "", *, file: str = "protocol") -> Protocol:
    """The same from text; `file` is how error messages call it."""
    if len(text) > MOST_BYTES:
        raise InputError(f"found {len(text):,} characters; expected at most {MOST_BYTES:,}", where=file)
    found = parse(text, file)
    if name and name not in found:
        raise unknown("protocol", name, found, where=file)
    main = found[name] if name else next(iter(found.values()))
    return _Builder(found, file).protocol(main, text)


class _Builder:
    """Makes the graph from back to front, because a message needs the node behind it."""

    def __init__(self, definitions: dict[str, Definition], file: str) -> None:
        self.definitions = definitions
        self.where = file
        self.nodes: list[Node | None] = []
        #: Where a recursion begins: the slot of its name, and the node that it stands for.
        self.same: dict[int, int] = {}
        self.mixes = 0
        self.calls: dict[tuple[str, tuple[str, ...]], int] = {}

    def protocol(self, main: Definition, text: str) -> Protocol:
        start = self.call(main, main.roles, (), main.place)
        order, numbers = [self.resolved(start, main.place)], {}
        numbers[order[0]] = 0
        # Breadth first: the nodes of a protocol in the order in which they can happen.
        for at in order:
            node = self.nodes[at]
            for target in targets(node) if node is not None else ():
                to = self.resolved(target, node.place if node is not None else main.place)
                if to not in numbers:
                    numbers[to] = len(order)
                    order.append(to)
        return Protocol(main.name, main.roles, tuple(self.renumbered(at, numbers) for at in order), self.where, text)

    def renumbered(self, at: int, numbers: dict[int, int]) -> Node:
        node = self.nodes[at]
        assert node is not None
        if isinstance(node, Interaction):
            moved = (replace(b, target=numbers[self.resolved(b.target, b.place)]) for b in node.branches)
            return replace(node, branches=tuple(moved))
        if isinstance(node, Mixed):
            left, right = (numbers[self.resolved(side, node.place)] for side in (node.left, node.right))
            return replace(node, left=left, right=right)
        return node

    def resolved(self, at: int, place: Place) -> int:
        seen = set()
        while at in self.same:
            if at in seen:
                raise self.fault("found a recursion that does nothing before it continues; expected a message on the way", place)
            seen.add(at)
            at = self.same[at]
        return at

    def fault(self, message: str, place: Place) -> InputError:
        return InputError(message, where=f"{self.where}:{place.line}:{place.column}")

    def add(self, node: Node | None, place: Place) -> int:
        if len(self.nodes) >= MOST_NODES:
            raise self.fault(f"found more than {MOST_NODES:,} steps with sub-protocols in their places; expected fewer", place)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def call(self, what: Definition, roles: tuple[str, ...], inside: tuple[Side, ...], place: Place) -> int:
        key = (what.name, roles)
        if key in self.calls:
            return self.calls[key]
        if len(self.calls) >= MOST_NESTING:
            raise self.fault(f"found more than {MOST_NESTING} calls inside each other; expected at most {MOST_NESTING}", place)
        slot = self.add(None, place)
        self.calls[key] = slot
        self.same[slot] = self.block(what.body, dict(zip(what.roles, roles)), {}, inside)
        del self.calls[key]
        return slot

    def role(self, name: str, roles: dict[str, str], place: Place) -> str:
        if name not in roles:
            raise self.fault(str(unknown("role", name, roles)), place)
        return roles[name]

    def block(self, block: Block, roles: dict[str, str], names: dict[str, int], inside: tuple[Side, ...]) -> int:
        at = self.last(block, roles, names, inside)
        for one in reversed(block.messages):
            sender, receiver = (self.role(name, roles, one.place) for name in (one.sender, one.receiver))
            branch = Branch(one.label, one.payload, at, one.place)
            at = self.add(Interaction(sender, receiver, (branch,), inside, one.place), one.place)
        return at

    def last(self, block: Block, roles: dict[str, str], names: dict[str, int], inside: tuple[Side, ...]) -> int:
        last = block.last
        if last is None:
            return self.add(End(inside, block.place), block.place)
        if isinstance(last, Continue):
            if last.name not in names:
                raise self.fault(str(unknown("recursion", last.name, names)), last.place)
            return names[last.name]
        if isinstance(last, Recursion):
            slot = self.add(None, last.place)
            self.same[slot] = self.block(last.body, roles, {**names, last.name: slot}, inside)
            self.resolved(slot, last.place)
            return slot
        if isinstance(last, Call):
            return self.called(last, roles, inside)
        if isinstance(last, Choice):
            return self.choice(last, roles, names, inside)
        return self.mixed(last, roles, names, inside)

    def called(self, last: Call, roles: dict[str, str], inside: tuple[Side, ...]) -> int:
        if last.name not in self.definitions:
            raise self.fault(str(unknown("protocol", last.name, self.definitions)), last.place)
        what = self.definitions[last.name]
        given = tuple(self.role(name, roles, last.place) for name in last.roles)
        if len(given) != len(what.roles) or len(set(given)) != len(given):
            raise self.fault(f"found {len(set(given))} different roles for {what.name}; expected {len(what.roles)}", last.place)
        return self.call(what, given, inside, last.place)

    def choice(self, last: Choice, roles: dict[str, str], names: dict[str, int], inside: tuple[Side, ...]) -> int:
        chooser = self.role(last.chooser, roles, last.place)
        branches: list[Branch] = []
        receiver = ""
        for block in last.blocks:
            if not block.messages and isinstance(block.last, Continue | None):
                raise self.fault(f"found a branch without a message; expected one from {chooser} first", block.place)
            node = self.nodes[self.resolved(self.block(block, roles, names, inside), block.place)]
            if not isinstance(node, Interaction) or node.sender != chooser:
                raise self.fault(f"found a branch that {chooser} does not begin; expected a message from {chooser} first", block.place)
            if receiver not in ("", node.receiver):
                message = f"found first messages to {receiver} and to {node.receiver}; expected one role that learns of the choice first"
                raise self.fault(message, block.place)
            receiver = node.receiver
            branches += node.branches
        for i, branch in enumerate(branches):
            if branch.label in [one.label for one in branches[:i]]:
                raise self.fault(f'found the label "{branch.label}" twice in one choice; expected different labels', branch.place)
        return self.add(Interaction(chooser, receiver, tuple(branches), inside, last.place), last.place)

    def mixed(self, last: MixedChoice, roles: dict[str, str], names: dict[str, int], inside: tuple[Side, ...]) -> int:
        k = self.mixes
        self.mixes += 1
        if self.mixes > MOST_MIXES:
            raise self.fault(f"found more than {MOST_MIXES} mixed choices with sub-protocols in their places; expected fewer", last.place)
        tentative, observer = (self.role(name, roles, last.place) for name in (last.tentative, last.observer))
        for block in (last.left, last.right):
            if not block.messages and isinstance(block.last, Continue | None):
                raise self.fault("found a side without a message; expected one first", block.place)
        left = self.block(last.left, roles, names, (*inside, (k, LEFT)))
        right = self.block(last.right, roles, names, (*inside, (k, RIGHT)))
        return self.add(Mixed(k, tentative, observer, left, right, inside, last.place), last.place)
