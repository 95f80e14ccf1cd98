"""Version vectors: a version says how much of every replica's work it has seen, so two that have not seen each other are both kept.

A write joins the vectors of all siblings shown and counts its own replica up. On meeting another version, the one whose vector is smaller
in every place goes; of two that are incomparable both stay, side by side. Local changes are pushed at once; what is not known to have
arrived is listed again (vectors only), and the other end asks for what it lacks. A rename is a delete and a create; groups are not known
to it.

D. S. Parker et al., Detection of mutual inconsistency in distributed systems, IEEE TSE 1983. The exchange of lists is our design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .protocol import HEADER_BYTES, RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written

Vector = tuple[tuple[str, int], ...]
COUNTER_BYTES = 12


@dataclass(frozen=True)
class VersionVector(SyncProtocol):
    """A vector for each file, concurrent versions kept as siblings (Parker et al., 1983)."""

    retry: float = field(
        default=10.0, metadata={"doc": "seconds after which what may not have arrived is listed again", "range": (0.1, 3600.0)}
    )

    def node(self, host: Host) -> Node:
        """A replica."""
        return VectorNode(host, self)


@dataclass(frozen=True)
class Sibling:
    """One version of a file; `content` None: a delete."""

    vector: Vector
    content: Content | None
    ops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + COUNTER_BYTES * len(self.vector) + (self.content.size if self.content else 0)


def covers(a: Vector, b: Vector) -> bool:
    """Whether `a` has seen all that `b` has."""
    mine = dict(a)
    return all(mine.get(replica, 0) >= count for replica, count in b)


def join(vectors: Iterable[Vector]) -> dict[str, int]:
    """The least vector that covers all of these."""
    out: dict[str, int] = {}
    for vector in vectors:
        for replica, count in vector:
            out[replica] = max(out.get(replica, 0), count)
    return out


class VectorNode:
    """A replica with siblings."""

    def __init__(self, host: Host, how: VersionVector) -> None:
        self.host, self.how = host, how
        self.files: dict[str, tuple[Sibling, ...]] = {}
        #: When each path last changed here, by this replica's own count; in that order.
        self.changed: dict[str, int] = {}
        self.count = 0
        self.own = 0
        self.acked = dict.fromkeys(host.peers, 0)
        self._up = dict.fromkeys(host.peers, False)
        self._listing = dict.fromkeys(host.peers, False)

    def local(self, act: Act) -> bool:
        """Writes above all siblings shown, and tells everyone who can be reached."""
        op = act.operation
        touched = [op.path]
        live = self._live(op.path)
        if op.op in ("write", "append"):
            self._write(op.path, written(act, live[0].content if live else None), (act.number,))
        elif op.op == "delete":
            self._write(op.path, None, (act.number,))
        elif op.op == "rename":
            ops = tuple(dict.fromkeys((*(n for s in live for n in s.ops), act.number)))
            # Two siblings counted up one after the other would look ordered: several keep the vectors that they have.
            alone = len(live) == 1
            moved = [Sibling(self._next(op.to) if alone else s.vector, s.content, (*s.ops, act.number)) for s in live]
            self._write(op.path, None, ops)
            for one in moved:
                self._merge(op.to, (one,), tell=False)
            touched.append(op.to)
        else:
            return True
        for peer in self.host.peers:
            if self._up[peer]:
                self._push(peer, touched)
                self._list_later(peer)
        return True

    def _next(self, path: str) -> Vector:
        """Above everything at `path`, and one more of our own."""
        self.own += 1
        vector = join(s.vector for s in self.files.get(path, ()))
        vector[self.host.name] = self.own
        return tuple(sorted(vector.items()))

    def _write(self, path: str, content: Content | None, ops: tuple[int, ...]) -> None:
        self.files[path] = (Sibling(self._next(path), content, ops),)
        self._touch(path)

    def _touch(self, path: str) -> None:
        self.count += 1
        self.changed.pop(path, None)
        self.changed[path] = self.count

    def _merge(self, path: str, theirs: tuple[Sibling, ...], *, tell: bool = True) -> None:
        mine = self.files.get(path, ())
        held = {s.vector for s in mine}
        new = [t for t in theirs if t.vector not in held and not any(covers(s.vector, t.vector) for s in mine)]
        if not new:
            return
        kept = [s for s in mine if not any(covers(t.vector, s.vector) for t in new)]
        self.files[path] = tuple(sorted((*kept, *new), key=lambda s: s.vector))
        self._touch(path)
        for t in new:
            self.host.shows(t.ops)
            for s in kept:
                if tell and (s.content is not None or t.content is not None):
                    self.host.conflict(s.ops, t.ops)

    def _push(self, peer: str, paths: Iterable[str]) -> None:
        body = tuple((path, self.files[path]) for path in paths if path in self.files)
        size = HEADER_BYTES + sum(len(path) + sum(s.bytes for s in siblings) for path, siblings in body)
        self.host.send(peer, Message("push", body, size, frozenset(path for path, _ in body)))

    def _list_later(self, peer: str) -> None:
        if not self._listing[peer]:
            self._listing[peer] = True
            self.host.after(self.how.retry, self._list, peer)

    def _list(self, peer: str) -> None:
        """Sends the vectors of what changed since the peer last wanted nothing; again, until it wants nothing."""
        self._listing[peer] = False
        if self.acked[peer] < self.count and self._up[peer]:
            new = [path for path, count in self.changed.items() if count > self.acked[peer]]
            body = tuple((path, tuple(s.vector for s in self.files[path])) for path in new)
            size = HEADER_BYTES + sum(len(path) + sum(COUNTER_BYTES * len(v) for v in vectors) for path, vectors in body)
            self.host.send(peer, Message("have", (self.count, body), size))
            self._list_later(peer)

    def receive(self, sender: str, message: Message) -> None:
        """Versions, lists of vectors, and wants."""
        if message.kind == "push":
            before = self.count
            for path, siblings in message.body:
                self._merge(path, siblings)
            if self.count > before:
                for peer in self.host.peers:
                    self._list_later(peer)
        elif message.kind == "have":
            count, body = message.body
            wanted = tuple(path for path, vectors in body if any(self._lacks(path, vector) for vector in vectors))
            size = HEADER_BYTES + sum(map(len, wanted))
            self.host.send(sender, Message("want", (count, wanted), size))
        elif message.kind == "want":
            count, wanted = message.body
            if wanted:
                self._push(sender, wanted)
                self._list_later(sender)
            else:
                self.acked[sender] = max(self.acked[sender], count)

    def _lacks(self, path: str, vector: Vector) -> bool:
        return not any(covers(s.vector, vector) for s in self.files.get(path, ()))

    def link(self, peer: str, up: bool) -> None:
        """Back: lists what the peer may lack."""
        self._up[peer] = up
        if up:
            self._list(peer)

    def round(self) -> None:
        """Lists what any peer may lack."""
        for peer in self.host.peers:
            self._list(peer)

    def status(self) -> str:
        """Conflict where there are siblings, waiting while a peer may lack something."""
        if any(len(siblings) > 1 for siblings in self.files.values()):
            return "conflict"
        return "waiting" if any(acked < self.count for acked in self.acked.values()) else "in sync"

    def _live(self, path: str) -> list[Sibling]:
        return [s for s in self.files.get(path, ()) if s.content is not None]

    def look(self, path: str) -> tuple[Shown, ...]:
        """All siblings, deletes too."""
        return tuple(Shown(s.ops, s.content) for s in self.files.get(path, ()))

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """All files with all siblings."""
        found = {path: tuple(s.content for s in siblings if s.content is not None) for path, siblings in self.files.items()}
        return {path: contents for path, contents in found.items() if contents}

    def metadata_bytes(self) -> int:
        """Vectors of all paths; deleted ones stay for ever."""
        return sum(len(p) + sum(RECORD_BYTES + COUNTER_BYTES * len(s.vector) for s in ss) for p, ss in self.files.items())
