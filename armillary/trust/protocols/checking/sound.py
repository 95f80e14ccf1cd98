"""Is a protocol sound? All conditions together, each fault with its line, its role and the condition's name."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from armillary.errors import InputError

from ..language.protocol import Interaction, Protocol
from .conditions import CONDITIONS, Violation, mixed_choice
from .machine import Machines, State, Step
from .projection import Projected, acting_ahead, projected, system_of


class Unsound(InputError):
    """A protocol that breaks conditions; `violations` has all of them, and the message is the first one's."""

    def __init__(self, protocol: Protocol, violations: list[Violation]) -> None:
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        super().__init__(f"{first.condition}, role {first.role}: {first.message}{more}", where=f"{protocol.file}:{first.line}")
        self.violations = tuple(violations)
        self.condition, self.line, self.role = first.condition, first.line, first.role


def violations(protocol: Protocol, *, tags: bool = False, without: Collection[str] = ()) -> list[Violation]:
    """Everything that is wrong; `without` leaves conditions out, to show what they are for."""
    return examined(protocol, tags=tags, without=without)[0]


def examined(protocol: Protocol, *, tags: bool = False, without: Collection[str] = ()) -> tuple[list[Violation], Machines | None]:
    """What is wrong, and the machines if nothing is."""
    found = [one for mixed in protocol.mixes.values() for one in mixed_choice(protocol, mixed, tags=tags)]
    idle = sorted(set(protocol.roles) - protocol.acting())
    found += [Violation("roles", 1, role, "is declared and never acts; expected that it sends or receives") for role in idle]
    found = [one for one in found if one.condition not in without]
    system = None
    # Merging is looked at last: what it says of a protocol that breaks other conditions is hard to read.
    if not found:
        parts = projected(protocol)
        merged = (one for role, what in parts.items() for one in merging(protocol, role, what))
        found = [one for one in merged if one.condition not in without]
        system = system_of(protocol, parts, tags=tags)
    order = {condition: number for number, condition in enumerate(CONDITIONS)}
    return sorted(dict.fromkeys(found), key=lambda one: (order[one.condition], one.line, one.role)), None if found else system


def check(protocol: Protocol, *, tags: bool = False) -> Machines:
    """The machines of a sound protocol; raises `Unsound` for any other.

    tags: whether every message carries the instance of each mixed choice that it belongs to, as it does on the transports here; then an
    acknowledgement of the right side may be absent.
    """
    wrong, system = examined(protocol, tags=tags)
    if system is None:
        raise Unsound(protocol, wrong)
    return system


def merging(protocol: Protocol, role: str, found: Projected) -> Iterator[Violation]:
    """Where the branches of others cannot be merged for a role."""
    ahead = acting_ahead(protocol, role)
    for number, state in enumerate(found.machine.states):
        ends = any(place.node not in ahead for place in found.places[number])
        fault = _state_fault(protocol, role, state, ends)
        if fault:
            condition, text = fault
            line = min((protocol.nodes[place.node].place.line for place in found.places[number]), default=1)
            yield Violation(condition, line, role, text)
    yield from _sends_everywhere(protocol, role, found)


def _state_fault(protocol: Protocol, role: str, state: State, ends: bool) -> tuple[str, str] | None:
    if ends and state.steps:
        return "merge", f"cannot know whether the protocol has ended or {_words(state.steps[0])} follows; expected that it is told"
    by_message: dict[tuple[bool, str, str], Step] = {}
    for step in state.steps:
        other = by_message.setdefault((step.send, step.peer, step.label), step)
        if other.payload != step.payload:
            return "payload", f'the payload of "{step.label}" differs between branches; expected one payload per label'
        if other is not step:
            return "merge", f"{_words(step)} may mean two things here; expected different labels"
    sends, receives = state.sends, state.receives
    if sends and receives and not all(_apart(protocol, role, a, b) for a in sends for b in receives):
        return "merge", f"cannot know whether it should send {_words(sends[0])} or wait; expected that it is told"
    senders = {step.peer for step in receives}
    if len(senders) > 1 and not all(_apart_or_same(protocol, a, b) for a in receives for b in receives):
        return "merge", f"waits for first messages of {' and '.join(sorted(senders))}, of which one may overtake; expected one sender"
    return None


def _apart(protocol: Protocol, role: str, send: Step, receive: Step) -> bool:
    """Whether two steps belong to different sides of a mixed choice in which the role may start."""
    sides = dict(send.path)
    return any(sides.get(k, side) != side and role in (protocol.mixes[k].tentative, protocol.mixes[k].observer) for k, side in receive.path)


def _apart_or_same(protocol: Protocol, a: Step, b: Step) -> bool:
    return a.peer == b.peer or any(dict(a.path).get(k, side) != side for k, side in b.path)


def _sends_everywhere(protocol: Protocol, role: str, found: Projected) -> Iterator[Violation]:
    """A role may only send what every place where it may be allows, unless the places are sides of a choice of its own."""
    for number, state in enumerate(found.machine.states):
        nodes = [protocol.nodes[place.node] for place in found.places[number]]
        mine = [node for node in nodes if isinstance(node, Interaction) and node.sender == role]
        offered = {tuple(sorted((node.receiver, branch.label) for branch in node.branches)) + node.inside for node in mine}
        if len(offered) > 1:
            text = f"must send here and cannot know which of {_words(state.sends[0])} and others; expected that it is told"
            yield Violation("merge", min(node.place.line for node in mine), role, text)


def _words(step: Step) -> str:
    return f'"{step.label}" {"to" if step.send else "from"} {step.peer}'
