"""The conditions on each mixed choice, checked on the protocol alone: observer, commitment, awareness, staleness.

Each side of mix^k(p ▷ o) is walked with the set of roles that know on every way which side was taken. On the left o knows after p's first
message and p after its first receive; on the right o knows with its own first message and p on receiving it. Whoever receives from a
role that knows, knows. The walk is a fixpoint over the nodes of the side, so it is polynomial however the protocol loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..language.protocol import LEFT, RIGHT, End, Interaction, Mixed, Node, Protocol, targets
from ..language.tokens import Place

CONDITIONS = ("observer", "commitment", "awareness", "staleness", "merge", "payload", "roles")


@dataclass(frozen=True)
class Violation:
    """A condition that a protocol breaks: which, where, for which role, and what is wrong."""

    condition: str
    line: int
    role: str
    message: str
    #: The mixed choice, and the place behind which `repair` may put something.
    k: int | None = None
    place: Place = field(default=Place(0, 0))

    def __str__(self) -> str:
        return f"line {self.line}: {self.condition}, role {self.role}: {self.message}"


@dataclass(frozen=True)
class Exit:
    """Where a side ends, who knows the side there, whether p was acknowledged to o, and whether o can be sure that p has committed."""

    place: Place
    knows: frozenset[str]
    acknowledged: bool
    settled: bool
    #: Whether the protocol goes on behind it.
    goes_on: bool


@dataclass
class Walk:
    """One side of a mixed choice: its nodes, who knows before each of them, and where p has been acknowledged to o."""

    nodes: dict[int, frozenset[str]]
    acknowledged: dict[int, bool]
    #: Before each node, who can know that p has committed; "" where o's next message to p comes after that.
    settled: dict[int, frozenset[str]]
    exits: list[Exit]

    def acting(self, protocol: Protocol) -> set[str]:
        """The roles that act on this side."""
        found = (protocol.nodes[at] for at in self.nodes)
        return {role for node in found if isinstance(node, Interaction) for role in (node.sender, node.receiver)}


def walk(protocol: Protocol, mixed: Mixed, side: str) -> Walk:
    """Who knows what on one side, as a fixpoint: at each node the roles that know on every way to it."""
    start = mixed.left if side == LEFT else mixed.right
    found: dict[int, tuple[frozenset[str], bool, frozenset[str]]] = {start: (frozenset(), False, frozenset())}
    waiting = [start]
    while waiting:
        at = waiting.pop()
        after = _after(protocol.nodes[at], mixed, side, *found[at], first=at == start)
        for target in targets(protocol.nodes[at]):
            if (mixed.k, side) not in protocol.nodes[target].inside:
                continue
            old = found.get(target)
            new = after if old is None else (old[0] & after[0], old[1] and after[1], old[2] & after[2])
            if new != old:
                found[target] = new
                waiting.append(target)
    exits = []
    for at in sorted(found):
        node = protocol.nodes[at]
        knows, acknowledged, settled = _after(node, mixed, side, *found[at], first=at == start)
        out = [t for t in targets(node) if (mixed.k, side) not in protocol.nodes[t].inside]
        if isinstance(node, End) or out:
            goes_on = any(not isinstance(protocol.nodes[t], End) for t in out)
            exits.append(Exit(node.place, knows, acknowledged, bool(settled & {"", mixed.observer}), goes_on))
    return Walk({at: one[0] for at, one in found.items()}, {at: one[1] for at, one in found.items()},
                {at: one[2] for at, one in found.items()}, exits)  # fmt: skip


def _after(
    node: Node, mixed: Mixed, side: str, knows: frozenset[str], acknowledged: bool, settled: frozenset[str], *, first: bool
) -> tuple[frozenset[str], bool, frozenset[str]]:
    if not isinstance(node, Interaction):
        return knows, acknowledged, settled
    if side == RIGHT and (node.sender, node.receiver) == (mixed.tentative, mixed.observer):
        acknowledged = True
    if first:
        new = {mixed.observer} if side == LEFT else {node.sender, node.receiver} & {mixed.observer, mixed.tentative}
        return knows | new, acknowledged, settled
    if node.sender in knows:
        if node.receiver == mixed.tentative and node.receiver not in knows:
            settled |= {node.receiver}
        if (node.sender, node.receiver) == (mixed.observer, mixed.tentative):
            settled |= {"", node.receiver}
        knows |= {node.receiver}
    if node.sender in settled:
        settled |= {node.receiver}
    return knows, acknowledged, settled


def mixed_choice(protocol: Protocol, mixed: Mixed, *, tags: bool) -> Iterator[Violation]:
    """What one mixed choice breaks."""
    sides = {side: walk(protocol, mixed, side) for side in (LEFT, RIGHT)}
    yield from _observer(protocol, mixed, sides[LEFT])
    for side, walked in sides.items():
        yield from _commitment_and_awareness(protocol, mixed, side, walked)
    yield from _same_roles(protocol, mixed, sides[LEFT], sides[RIGHT])
    yield from _distinct_labels(protocol, mixed, sides[LEFT], sides[RIGHT])
    if not tags:
        yield from _staleness(protocol, mixed, sides[LEFT], sides[RIGHT])


def _observer(protocol: Protocol, mixed: Mixed, left: Walk) -> Iterator[Violation]:
    labels = []
    for side, at, sender, receiver in (
        (LEFT, mixed.left, mixed.tentative, mixed.observer),
        (RIGHT, mixed.right, mixed.observer, mixed.tentative),
    ):
        node = protocol.nodes[at]
        if not isinstance(node, Interaction) or (node.sender, node.receiver) != (sender, receiver):
            found = f"{node.sender} to {node.receiver}" if isinstance(node, Interaction) else "nothing of the kind"
            text = f"the {side} side begins with a message from {found}; expected one from {sender} to {receiver}"
            yield Violation("observer", node.place.line, mixed.observer, text, mixed.k, node.place)
        else:
            labels.append({branch.label for branch in node.branches})
    if len(labels) == 2 and (both := sorted(labels[0] & labels[1])):
        text = f'"{both[0]}" begins both sides; expected different labels'
        yield Violation("observer", protocol.nodes[mixed.right].place.line, mixed.observer, text, mixed.k, mixed.place)
    if len(labels) == 2:
        # What stands in an inner choice may be thrown away, so that a later message is the first after all.
        nested = any(isinstance(protocol.nodes[at], Mixed) for at in left.nodes)
        for at in sorted(left.nodes):
            node = protocol.nodes[at]
            if isinstance(node, Interaction) and (node.sender, node.receiver) == (mixed.observer, mixed.tentative):
                for branch in node.branches if nested or "" not in left.settled[at] else ():
                    if branch.label in labels[1]:
                        text = (
                            f'"{branch.label}" is the first that {mixed.tentative} may hear of it on either side; expected different labels'
                        )
                        yield Violation("observer", branch.place.line, mixed.observer, text, mixed.k, branch.place)


def _commitment_and_awareness(protocol: Protocol, mixed: Mixed, side: str, walked: Walk) -> Iterator[Violation]:
    start = mixed.left if side == LEFT else mixed.right
    for at in sorted(walked.nodes):
        node = protocol.nodes[at]
        if not isinstance(node, Interaction) or at == start or node.sender in walked.nodes[at]:
            continue
        said = f'sends "{node.branches[0].label}" to {node.receiver} on the {side} side'
        if node.sender == mixed.tentative and side == LEFT:
            if node.receiver != mixed.observer:
                text = f"{said} before it has received anything there; expected only messages to {mixed.observer} until then"
                yield Violation("commitment", node.place.line, node.sender, text, mixed.k, node.place)
        else:
            text = f"{said} before it can know of it; expected that it first receives from a role that knows"
            yield Violation("awareness", node.place.line, node.sender, text, mixed.k, node.place)
    if side == LEFT:
        for out in walked.exits:
            if mixed.tentative not in out.knows:
                text = "may leave the left side before it has received anything there; expected a message to it first"
                yield Violation("commitment", out.place.line, mixed.tentative, text, mixed.k, out.place)


def _same_roles(protocol: Protocol, mixed: Mixed, left: Walk, right: Walk) -> Iterator[Violation]:
    pair = {mixed.tentative, mixed.observer}
    acting = {LEFT: left.acting(protocol) - pair, RIGHT: right.acting(protocol) - pair}
    for one, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        for role in sorted(acting[one] - acting[other]):
            text = f"acts on the {one} side and not on the {other} one; expected that it learns of both"
            yield Violation("awareness", mixed.place.line, role, text, mixed.k, mixed.place)
    for side, walked in ((LEFT, left), (RIGHT, right)):
        for role in sorted(acting[LEFT] & acting[RIGHT]):
            for out in walked.exits:
                if role not in out.knows:
                    text = f"may not hear of the {side} side before it ends; expected a message to it on every way"
                    yield Violation("awareness", out.place.line, role, text, mixed.k, out.place)
                    break


def _distinct_labels(protocol: Protocol, mixed: Mixed, left: Walk, right: Walk) -> Iterator[Violation]:
    """Whoever waits for either side must be able to tell them apart, also where one sender's message overtakes another's."""
    for role in sorted((left.acting(protocol) | right.acting(protocol)) - {mixed.observer}):
        # The tentative role learns of the right side from the observer; what it hears of others first on the left must not be of the right.
        first_left = dict(_heard(protocol, left, role, unaware=True))
        any_right = dict(_heard(protocol, right, role, unaware=False))
        for key in first_left.keys() & any_right.keys():
            if role == mixed.tentative and key[0] == mixed.observer:
                continue  # The observer's own first label is what `observer` and `merge` look at; later ones come after it.
            text = f'hears "{key[1]}" from {key[0]} on both sides, and may take one for the other; expected different labels'
            yield Violation("awareness", any_right[key].line, role, text, mixed.k, any_right[key])
        if role == mixed.tentative:
            continue
        first_right = dict(_heard(protocol, right, role, unaware=True))
        any_left = dict(_heard(protocol, left, role, unaware=False))
        for key in (first_right.keys() & any_left.keys()) - (first_left.keys() & any_right.keys()):
            text = f'hears "{key[1]}" from {key[0]} on both sides, and may take one for the other; expected different labels'
            yield Violation("awareness", any_left[key].line, role, text, mixed.k, any_left[key])


def _heard(protocol: Protocol, walked: Walk, role: str, *, unaware: bool) -> Iterable[tuple[tuple[str, str], Place]]:
    """What a role may receive on a side: (sender, label) and its place; with `unaware` only while it may not know the side."""
    for at in sorted(walked.nodes, reverse=True):
        node = protocol.nodes[at]
        if isinstance(node, Interaction) and node.receiver == role and not (unaware and role in walked.nodes[at]):
            for branch in node.branches:
                yield (node.sender, branch.label), branch.place


def tentative_labels(protocol: Protocol, mixed: Mixed, left: Walk) -> set[str]:
    """What p may say to o on the left while o may still decide otherwise."""
    found = set()
    for at in left.nodes:
        node = protocol.nodes[at]
        said = isinstance(node, Interaction) and (node.sender, node.receiver) == (mixed.tentative, mixed.observer)
        if isinstance(node, Interaction) and said and mixed.tentative not in left.nodes[at]:
            found |= {branch.label for branch in node.branches}
    return found


def _staleness(protocol: Protocol, mixed: Mixed, left: Walk, right: Walk) -> Iterator[Violation]:
    stale = tentative_labels(protocol, mixed, left)
    for at in sorted(right.nodes):
        node = protocol.nodes[at]
        if isinstance(node, Interaction) and (node.sender, node.receiver) == (mixed.tentative, mixed.observer):
            for branch in node.branches if not right.acknowledged[at] else ():
                if branch.label in stale:
                    text = f'acknowledges with "{branch.label}", which it may also have sent tentatively; expected another label'
                    yield Violation("staleness", branch.place.line, mixed.tentative, text, mixed.k, branch.place)
    for out in right.exits:
        if not out.acknowledged:
            text = f"may leave the right side without a message to {mixed.observer}, which then cannot tell what is stale; "
            text += "expected an acknowledgement, or tags"
            yield Violation("staleness", out.place.line, mixed.tentative, text, mixed.k, out.place)
    for out in left.exits:
        if out.goes_on and not out.settled and mixed.tentative in out.knows:
            text = f"may not have committed when {mixed.observer} goes on, whose next message may then interrupt the old instance; "
            text += f"expected a message from {mixed.observer} to it on the left side, or tags"
            yield Violation("staleness", out.place.line, mixed.tentative, text, mixed.k, out.place)
    if any(out.goes_on for out in (*left.exits, *right.exits)):
        yield from _one_sender(protocol, mixed, left, right)


def _one_sender(protocol: Protocol, mixed: Mixed, left: Walk, right: Walk) -> Iterator[Violation]:
    """Where the protocol goes on, who tells a third role of a later right side must not overtake who tells it of this left one."""
    acting = left.acting(protocol) | right.acting(protocol)
    for role in sorted(acting - {mixed.tentative, mixed.observer}):
        senders = {key[0]: place for walked in (left, right) for key, place in _heard(protocol, walked, role, unaware=True)}
        if len(senders) > 1:
            text = f"is told of the sides by {' and '.join(sorted(senders))}, of which one may overtake in the next round; "
            text += "expected one sender, or tags"
            yield Violation("staleness", min(place.line for place in senders.values()), role, text, mixed.k, mixed.place)
