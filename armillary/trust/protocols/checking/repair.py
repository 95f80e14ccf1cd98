"""Repair: the smallest edit of the text that restores a broken condition, and the trace that goes wrong without it.

Edits are insertions of one message (who should tell whom, an acknowledgement that is missing) or a new name for one label. Every candidate
is checked, so what is proposed is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from armillary.errors import InputError

from ..exploring.explorer import Counterexample, explore_machines
from ..language.protocol import LEFT, RIGHT, Interaction, Mixed, Protocol, loads
from .conditions import Violation, walk
from .projection import machines_of
from .sound import violations

#: Edits that may follow each other, and candidates that are tried.
MOST_EDITS, MOST_TRIED = 2, 300


@dataclass(frozen=True)
class Repair:
    """What to change, the text after it, and what happens without it."""

    edits: tuple[str, ...]
    text: str
    condition: str
    counterexample: Counterexample | None


def repair(protocol: Protocol, *, tags: bool = False) -> Repair | None:
    """The fewest edits that make a protocol sound; None if it is, or if up to two edits of this kind do not help."""
    wrong = violations(protocol, tags=tags)
    if not wrong or not protocol.text:
        return None
    shown = explore_machines(machines_of(protocol, tags=tags), bound=2, most=20_000).counterexample
    level: list[tuple[tuple[str, ...], Protocol]] = [((), protocol)]
    tried = 0
    for _ in range(MOST_EDITS):
        following = []
        for edits, one in level:
            for said, text in _candidates(one, violations(one, tags=tags)):
                tried += 1
                if tried > MOST_TRIED:
                    return None
                try:
                    changed = loads(text, one.name, file=one.file)
                except InputError:
                    continue
                left = violations(changed, tags=tags)
                if not left:
                    return Repair((*edits, said), text, wrong[0].condition, shown)
                following.append(((*edits, said), changed))
        level = following
    return None


def _candidates(protocol: Protocol, wrong: list[Violation]) -> Iterator[tuple[str, str]]:
    names = {branch.label for node in protocol.interactions() for branch in node.branches}
    for one in wrong[:3]:
        mixed = protocol.mixes.get(one.k) if one.k is not None else None
        if mixed is None:
            continue
        p, o = mixed.tentative, mixed.observer
        if one.condition == "staleness":
            yield from _insertions(protocol, mixed, RIGHT, _fresh("acknowledged", names), p, o)
            yield from _insertions(protocol, mixed, LEFT, _fresh("noted", names), o, p)
        elif one.condition == "commitment":
            yield from _insertions(protocol, mixed, LEFT, _fresh("confirmed", names), o, p)
        elif one.condition == "awareness" and one.role not in (p, o):
            for side in (LEFT, RIGHT):
                yield from _insertions(protocol, mixed, side, _fresh(f"told_{side}", names), o, one.role)
        yield from _renamed(protocol, one, names)


def _fresh(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


def _insertions(protocol: Protocol, mixed: Mixed, side: str, label: str, sender: str, receiver: str) -> Iterator[tuple[str, str]]:
    """A message behind each message of a side, in the order of the side."""
    for at in sorted(walk(protocol, mixed, side).nodes):
        node = protocol.nodes[at]
        for branch in node.branches if isinstance(node, Interaction) else ():
            end = branch.place.end
            said = f'line {branch.place.line}: after "{branch.label}", {sender} tells {receiver} "{label}"'
            yield said, f"{protocol.text[:end]} {label}() from {sender} to {receiver};{protocol.text[end:]}"


def _renamed(protocol: Protocol, one: Violation, names: set[str]) -> Iterator[tuple[str, str]]:
    found = re.match(r'.*?"(\w+)"', one.message)
    if found is None:
        return
    label, new = found.group(1), _fresh(f"{found.group(1)}_right", names)
    for node in protocol.interactions():
        for branch in node.branches:
            if branch.label == label and (one.k, RIGHT) in node.inside:
                lines = protocol.text.split("\n")
                line = lines[branch.place.line - 1]
                at = branch.place.column - 1
                lines[branch.place.line - 1] = line[:at] + new + line[at + len(label) :]
                yield f'line {branch.place.line}: "{label}" on the right side is called "{new}"', "\n".join(lines)
