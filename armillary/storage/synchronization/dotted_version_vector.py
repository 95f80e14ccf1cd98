"""Dotted version vectors: one causal context for a file, and for each version only the dot at which it was made.

A version's dot is (replica, counter). Two states of a file are joined by keeping a version that both have, or that one has and the other
has never seen: its dot lies outside the other's context. So siblings made one after the other at one replica from different views stay
apart, which plain vectors cannot say, and a file costs one vector however many siblings it has. A delete leaves the context without
versions: a write that it did not see survives it. A rename is a delete and a create; groups are not known to it.

N. Preguiça et al., Brief announcement: efficient causality tracking in distributed storage systems with dotted version vectors, PODC 2012;
P. S. Almeida et al., Scalable and accurate causality tracking for eventually consistent stores, DAIS 2014. `anti_entropy` is how replicas
tell each other and is our design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from armillary.parameters import parameter

from .replicas.anti_entropy import AntiEntropyNode
from .version_vector import COUNTER_BYTES, Vector, covers, join
from .world.protocol import RECORD_BYTES, Act, Content, Host, Node, Shown, SyncProtocol, written


@dataclass(frozen=True)
class DottedVersionVector(SyncProtocol):
    """One context for each file and a dot for each version (Preguiça et al., 2012)."""

    retry: float = parameter(10.0, "seconds after which what may not have arrived is listed again", range=(0.1, 3600.0))

    def node(self, host: Host) -> Node:
        """Makes a replica."""
        return DottedNode(host, self.retry)


class Dotted(NamedTuple):
    """One version and where it was made."""

    dot: tuple[str, int]
    content: Content
    ops: tuple[int, ...]


class Register(NamedTuple):
    """A multi-value register: the versions that no one has seen and replaced, and all that was ever seen of it.

    `gone` stamps the deletes for the simulator's count and is no part of the protocol.
    """

    context: Vector = ()
    versions: tuple[Dotted, ...] = ()
    gone: tuple[int, ...] = ()

    def joined(self, other: Register) -> Register:
        """Returns what both together have; joining is commutative, associative and idempotent."""
        mine, theirs = dict(self.context), dict(other.context)
        here, there = {v.dot for v in self.versions}, {v.dot for v in other.versions}
        kept = [v for v in self.versions if v.dot in there or v.dot[1] > theirs.get(v.dot[0], 0)]
        kept += [v for v in other.versions if v.dot not in here and v.dot[1] > mine.get(v.dot[0], 0)]
        context = tuple(sorted(join((self.context, other.context)).items()))
        return Register(context, tuple(sorted(kept, key=lambda v: v.dot)), tuple(sorted({*self.gone, *other.gone})))

    def replaced(self, dot: tuple[str, int], made: Iterable[Dotted], gone: tuple[int, ...] = ()) -> Register:
        """Returns the register with all versions replaced by these, made here; `dot` is the last counter that was used."""
        context = dict(self.context) | {dot[0]: dot[1]}
        return Register(tuple(sorted(context.items())), tuple(made), gone)

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return COUNTER_BYTES * len(self.context) + sum(RECORD_BYTES + COUNTER_BYTES + v.content.size for v in self.versions)

    @property
    def metadata_bytes(self) -> int:
        """What it keeps beside the contents."""
        return COUNTER_BYTES * len(self.context) + (RECORD_BYTES + COUNTER_BYTES) * max(1, len(self.versions))


EMPTY = Register()


class DottedNode(AntiEntropyNode[Register, Vector]):
    """A replica: a register for each path."""

    def __init__(self, host: Host, retry_s: float) -> None:
        super().__init__(host, retry_s)
        self.own = 0

    def change(self, act: Act) -> list[str]:
        """Replaces all versions shown."""
        op = act.operation
        held = self.states.get(op.path, EMPTY)
        if op.op in ("write", "append"):
            content = written(act, held.versions[0].content if held.versions else None)
            self._set(op.path, [(content, (act.number,))])
        elif op.op == "delete":
            self._set(op.path, [], (act.number,))
        elif op.op == "rename":
            self._set(op.to, [(v.content, (*v.ops, act.number)) for v in held.versions])
            self._set(op.path, [], tuple(dict.fromkeys((*(n for v in held.versions for n in v.ops), act.number))))
            return [op.path, op.to]
        else:
            return []
        return [op.path]

    def _set(self, path: str, contents: list[tuple[Content, tuple[int, ...]]], gone: tuple[int, ...] = ()) -> None:
        made = []
        for content, ops in contents:
            self.own += 1
            made.append(Dotted((self.host.name, self.own), content, ops))
        if not contents:
            self.own += 1
        self.states[path] = self.states.get(path, EMPTY).replaced((self.host.name, self.own), made, gone)
        self.touch(path)

    def join(self, key: str, theirs: Register) -> None:
        """Keeps what is in both, or new to the other."""
        mine = self.states.get(key, EMPTY)
        if covers(mine.context, theirs.context):
            return
        self.states[key] = merged = mine.joined(theirs)
        self.touch(key)
        announce(self.host, mine, theirs, merged)

    def summary(self, key: str) -> Vector:
        """Returns the context; whoever has all of it lacks nothing."""
        return self.states[key].context

    def lacks(self, key: str, summary: Vector) -> bool:
        """Returns whether something was seen there and not here."""
        return not covers(self.states.get(key, EMPTY).context, summary)

    def state_bytes(self, state: Register) -> int:
        """Returns the bytes of context and versions."""
        return RECORD_BYTES + state.bytes

    def summary_bytes(self, summary: Vector) -> int:
        """Returns the bytes of a vector."""
        return COUNTER_BYTES * len(summary)

    def status(self) -> str:
        """Says conflict where there are siblings, and waiting while a peer may lack something."""
        if any(len(state.versions) > 1 for state in self.states.values()):
            return "conflict"
        return "waiting" if self.is_waiting() else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows all versions, and the deletes known."""
        return shown(self.states.get(path, EMPTY))

    def contents(self, place: str) -> Iterable[Content]:
        """Returns the contents of all versions at a path."""
        return [v.content for v in self.states.get(place, EMPTY).versions]

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files with all versions."""
        return {path: tuple(v.content for v in state.versions) for path, state in self.states.items() if state.versions}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether some peer wanted nothing after the last change here."""
        return self.is_acked(path)

    def metadata_bytes(self) -> int:
        """Returns the bytes of the contexts of all paths; deleted ones stay for ever."""
        return sum(len(path) + state.metadata_bytes for path, state in self.states.items())


def shown(state: Register) -> tuple[Shown, ...]:
    """Returns what a user sees of a register, and the deletes that it knows of."""
    deletes = (Shown(state.gone, None),) if state.gone else ()
    return (*(Shown(v.ops, v.content) for v in state.versions), *deletes)


def announce(host: Host, mine: Register, theirs: Register, merged: Register) -> None:
    """Tells the count what became visible, and which versions now stand beside each other for the first time here."""
    here = {v.dot for v in mine.versions}
    new = [v for v in merged.versions if v.dot not in here]
    kept = [v for v in merged.versions if v.dot in here]
    if theirs.gone and not merged.versions:
        host.shows(theirs.gone)
    for v in new:
        host.shows(v.ops)
        for other in kept:
            host.conflict(other.ops, v.ops)
