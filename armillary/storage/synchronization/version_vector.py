"""Version vectors: a version says how much of every replica's work it has seen, so two that have not seen each other are both kept.

A write joins the vectors of all siblings shown and counts its own replica up. On meeting another version, the one whose vector is smaller
in every place goes; of two that are incomparable both stay, side by side. A rename is a delete and a create; groups are not known to it.

D. S. Parker et al., Detection of mutual inconsistency in distributed systems, IEEE TSE 1983. `anti_entropy` is how replicas
tell each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from armillary.parameters import parameter

from .replicas.anti_entropy import AntiEntropyNode
from .world.protocol import RECORD_BYTES, Act, Content, Host, Node, Shown, SyncProtocol, written

Vector = tuple[tuple[str, int], ...]
COUNTER_BYTES = 12


@dataclass(frozen=True)
class VersionVector(SyncProtocol):
    """One vector per file, with concurrent versions kept as siblings (Parker et al., 1983)."""

    retry: float = parameter(10.0, "seconds after which what may not have arrived is listed again", range=(0.1, 3600.0))

    def node(self, host: Host) -> Node:
        """Makes a replica."""
        return VectorNode(host, self.retry)


class Sibling(NamedTuple):
    """One version of a file; `content` is None for a delete."""

    vector: Vector
    content: Content | None
    ops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + COUNTER_BYTES * len(self.vector) + (self.content.size if self.content else 0)


Siblings = tuple[Sibling, ...]


def covers(a: Vector, b: Vector) -> bool:
    """Returns whether `a` has seen all that `b` has."""
    if a == b:
        return True
    mine = dict(a)
    return all(mine.get(replica, 0) >= count for replica, count in b)


def join(vectors: Iterable[Vector]) -> dict[str, int]:
    """Returns the least vector that covers all of these."""
    out: dict[str, int] = {}
    for vector in vectors:
        for replica, count in vector:
            if out.get(replica, 0) < count:
                out[replica] = count
    return out


class VectorNode(AntiEntropyNode[Siblings, tuple[Vector, ...]]):
    """A replica: for each path its siblings, deletes among them."""

    def __init__(self, host: Host, retry_s: float) -> None:
        super().__init__(host, retry_s)
        self.own = 0

    def change(self, act: Act) -> list[str]:
        """Writes above all siblings shown."""
        op = act.operation
        live = self._live(op.path)
        if op.op in ("write", "append"):
            self._write(op.path, written(act, live[0].content if live else None), (act.number,))
        elif op.op == "delete":
            self._write(op.path, None, (act.number,))
        elif op.op == "rename":
            ops = tuple(dict.fromkeys((*(n for s in live for n in s.ops), act.number)))
            # Two siblings that are counted up one after the other would look ordered, so several keep the vectors that they have.
            alone = len(live) == 1
            moved = [Sibling(self._next(op.to) if alone else s.vector, s.content, (*s.ops, act.number)) for s in live]
            self._write(op.path, None, ops)
            for one in moved:
                self._merge(op.to, (one,), tell=False)
            return [op.path, op.to]
        else:
            return []
        return [op.path]

    def _next(self, path: str) -> Vector:
        """Returns a vector above everything at `path`, with one more of our own."""
        self.own += 1
        vector = join(s.vector for s in self.states.get(path, ()))
        vector[self.host.name] = self.own
        return tuple(sorted(vector.items()))

    def _write(self, path: str, content: Content | None, ops: tuple[int, ...]) -> None:
        self.states[path] = (Sibling(self._next(path), content, ops),)
        self.touch(path)

    def join(self, key: str, theirs: Siblings) -> None:
        """Keeps what no other version has seen."""
        self._merge(key, theirs, tell=True)

    def _merge(self, path: str, theirs: Siblings, *, tell: bool) -> None:
        mine = self.states.get(path, ())
        held = {s.vector for s in mine}
        new = [t for t in theirs if t.vector not in held and not any(covers(s.vector, t.vector) for s in mine)]
        if not new:
            return
        kept = [s for s in mine if not any(covers(t.vector, s.vector) for t in new)]
        self.states[path] = tuple(sorted((*kept, *new), key=lambda s: s.vector))
        self.touch(path)
        for t in new:
            self.host.shows(t.ops)
            for s in kept:
                if tell and (s.content is not None or t.content is not None):
                    self.host.conflict(s.ops, t.ops)

    def summary(self, key: str) -> tuple[Vector, ...]:
        """Returns the vectors of all siblings."""
        return tuple([s.vector for s in self.states[key]])

    def lacks(self, key: str, summary: tuple[Vector, ...]) -> bool:
        """Returns whether one of the vectors is not covered here."""
        mine = self.states.get(key, ())
        for vector in summary:
            for s in mine:
                if covers(s.vector, vector):
                    break
            else:
                return True
        return False

    def state_bytes(self, state: Siblings) -> int:
        """Returns the bytes of all siblings."""
        return sum(s.bytes for s in state)

    def summary_bytes(self, summary: tuple[Vector, ...]) -> int:
        """Returns the bytes of all vectors."""
        return COUNTER_BYTES * sum(map(len, summary))

    def status(self) -> str:
        """Says conflict where there are siblings, and waiting while a peer may lack something."""
        if any(len(siblings) > 1 for siblings in self.states.values()):
            return "conflict"
        return "waiting" if self.is_waiting() else "in sync"

    def _live(self, path: str) -> list[Sibling]:
        return [s for s in self.states.get(path, ()) if s.content is not None]

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows all siblings, deletes too."""
        return tuple(Shown(s.ops, s.content) for s in self.states.get(path, ()))

    def contents(self, place: str) -> Iterable[Content]:
        """Returns the contents of all siblings at a path."""
        return [s.content for s in self.states.get(place, ()) if s.content is not None]

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files with all siblings."""
        found = {path: tuple(s.content for s in siblings if s.content is not None) for path, siblings in self.states.items()}
        return {path: contents for path, contents in found.items() if contents}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether some peer wanted nothing after the last change here."""
        return self.is_acked(path)

    def metadata_bytes(self) -> int:
        """Returns the bytes of the vectors of all paths; deleted ones stay for ever."""
        return sum(len(p) + sum(RECORD_BYTES + COUNTER_BYTES * len(s.vector) for s in ss) for p, ss in self.states.items())
