"""A replicated data type: a map of files in which what was removed is only what the remover saw, and a rename moves, never copies.

A file has an identity, given when it is created. Its content is a multi-value register (concurrent writes stand side by side), and it
is in the map while that register holds a value: a delete removes the values observed, so a write beside it keeps the file. Its name
is a register of its own: a rename is one move operation on it, and of concurrent moves the one with the higher Lamport stamp (then replica)
stands, as for moves in replicated trees. So an edit here and a rename there meet in one file. Two files created under one name are both
shown there; a write on top replaces both. Groups are not known to it.

M. Shapiro, N. Preguiça, C. Baquero, M. Zawirski, Conflict-free replicated data types, SSS 2011 (observed-remove, multi-value register);
M. Kleppmann et al., A highly-available move operation for replicated trees, IEEE TPDS 2021 (moves). Registers are those of
`dotted_version_vector`, and `anti_entropy` is how replicas tell each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from armillary.parameters import parameter

from .dotted_version_vector import EMPTY, Dotted, Register, announce
from .replicas.anti_entropy import AntiEntropyNode
from .version_vector import COUNTER_BYTES, Vector, covers
from .world.protocol import RECORD_BYTES, Act, Content, Host, Node, Shown, SyncProtocol, written


@dataclass(frozen=True)
class Crdt(SyncProtocol):
    """An observed-remove map of files with multi-value contents and moves (Shapiro et al., 2011; Kleppmann et al., 2021)."""

    retry: float = parameter(10.0, "seconds after which what may not have arrived is listed again", range=(0.1, 3600.0))

    def node(self, host: Host) -> Node:
        """Makes a replica."""
        return CrdtNode(host, self.retry)


class Name(NamedTuple):
    """Where a file is: the last move by Lamport stamp, then replica. `ops` is the simulator's stamp."""

    stamp: tuple[int, str]
    path: str
    ops: tuple[int, ...] = ()


class File(NamedTuple):
    """A file's two registers, which are joined one by one."""

    name: Name
    contents: Register

    def joined(self, other: File) -> File:
        """Joins two states; joining is commutative, associative and idempotent."""
        return File(max(self.name, other.name), self.contents.joined(other.contents))


Summary = tuple[tuple[int, str], Vector]


class CrdtNode(AntiEntropyNode[File, Summary]):
    """A replica: files by identity, and which of them are at a path."""

    def __init__(self, host: Host, retry_s: float) -> None:
        super().__init__(host, retry_s)
        self.own = self.lamport = 0
        #: Identities of the files at a path, deleted ones too.
        self.at: dict[str, set[str]] = {}

    def paths(self, key: str) -> Iterable[str]:
        """Returns where the file is."""
        return (self.states[key].name.path,)

    def change(self, act: Act) -> list[str]:
        """Acts on all files that are shown at the path."""
        op = act.operation
        here = self._live(op.path)
        if op.op == "rename":
            for key in here:
                self._move(key, op.to, act.number)
            return here
        if op.op in ("write", "append"):
            seen = self.states[here[0]].contents.versions[0].content if here else None
            # A file that was deleted here comes back as itself, because as a new one it would stand beside its old content elsewhere.
            dead = sorted(self.at.get(op.path, set()).difference(here))
            key = here[0] if here else dead[0] if dead else self._create(op.path)
            for other in here[1:]:
                self._put(other, None, (act.number,))
            self._put(key, written(act, seen), (act.number,))
            return [*(other for other in (*dead, *here) if other != key), key]
        if op.op == "delete":
            for key in here:
                self._put(key, None, (act.number,))
            return here
        return []

    def _create(self, path: str) -> str:
        self.own += 1
        key = f"{self.host.name}/{self.own}"
        self._set(key, File(Name(self._stamp(), path), EMPTY))
        return key

    def _stamp(self) -> tuple[int, str]:
        self.lamport += 1
        return (self.lamport, self.host.name)

    def _move(self, key: str, to: str, number: int) -> None:
        file = self.states[key]
        self._set(key, file._replace(name=Name(self._stamp(), to, (number,))))
        self.touch(key)

    def _put(self, key: str, content: Content | None, ops: tuple[int, ...]) -> None:
        self.own += 1
        dot = (self.host.name, self.own)
        file = self.states[key]
        made = [] if content is None else [Dotted(dot, content, ops)]
        self._set(key, file._replace(contents=file.contents.replaced(dot, made, () if made else ops)))
        self.touch(key)

    def _set(self, key: str, file: File) -> None:
        before = self.states.get(key)
        self.states[key] = file
        if before is None or before.name.path != file.name.path:
            if before is not None:
                self.at[before.name.path].discard(key)
                if not self.at[before.name.path]:
                    del self.at[before.name.path]
            self.at.setdefault(file.name.path, set()).add(key)

    def join(self, key: str, theirs: File) -> None:
        """Joins both registers."""
        mine = self.states.get(key)
        self.lamport = max(self.lamport, theirs.name.stamp[0])
        merged = theirs if mine is None else mine.joined(theirs)
        if mine is not None and merged.name == mine.name and covers(mine.contents.context, theirs.contents.context):
            return
        before = set(self._live(merged.name.path))
        self._set(key, merged)
        self.touch(key)
        if mine is None or merged.name != mine.name:
            self.host.shows(merged.name.ops)
        announce(self.host, mine.contents if mine else EMPTY, theirs.contents, merged.contents)
        if key not in before and merged.contents.versions:
            self._tell_of_one_name(key, before)

    def _tell_of_one_name(self, key: str, others: Iterable[str]) -> None:
        """Tells of the conflict between the versions of two files that have come under one name."""
        for other in others:
            for a in self._shown(key):
                for b in self._shown(other):
                    self.host.conflict(a.ops, b.ops)

    def summary(self, key: str) -> Summary:
        """Returns the move's stamp and the contents' context."""
        file = self.states[key]
        return file.name.stamp, file.contents.context

    def lacks(self, key: str, summary: Summary) -> bool:
        """Returns whether a move or a write was seen there and not here."""
        mine = self.states.get(key)
        return mine is None or summary[0] > mine.name.stamp or not covers(mine.contents.context, summary[1])

    def state_bytes(self, state: File) -> int:
        """Returns the bytes of name and contents."""
        return RECORD_BYTES + len(state.name.path) + COUNTER_BYTES + state.contents.bytes

    def summary_bytes(self, summary: Summary) -> int:
        """Returns the bytes of a stamp and a vector."""
        return COUNTER_BYTES * (1 + len(summary[1]))

    def _live(self, path: str) -> list[str]:
        return sorted(key for key in self.at.get(path, ()) if self.states[key].contents.versions)

    def _shown(self, key: str) -> list[Shown]:
        name, contents = self.states[key]
        return [Shown(tuple(dict.fromkeys((*v.ops, *name.ops))), v.content) for v in contents.versions]

    def status(self) -> str:
        """Says conflict where a path shows several versions, and waiting while a peer may lack something."""
        if any(len(versions) > 1 for versions in self.tree().values()):
            return "conflict"
        return "waiting" if self.is_waiting() else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows all versions of all files there, and the deletes known."""
        found: list[Shown] = []
        for key in sorted(self.at.get(path, ())):
            found += self._shown(key)
            gone = self.states[key].contents.gone
            if gone:
                found.append(Shown(gone, None))
        return tuple(found)

    def contents(self, place: str) -> Iterable[Content]:
        """Returns the contents of all versions of a file."""
        return [v.content for v in self.states[place].contents.versions]

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all paths with all versions of all files there."""
        states = self.states
        found = {path: tuple(v.content for key in sorted(keys) for v in states[key].contents.versions) for path, keys in self.at.items()}
        return {path: contents for path, contents in found.items() if contents}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether some peer wanted nothing after the last change of every file there."""
        return all(self.is_acked(key) for key in self._live(path))

    def metadata_bytes(self) -> int:
        """Returns the bytes of names and contexts of all files; deleted ones stay for ever."""
        return sum(len(key) + len(file.name.path) + COUNTER_BYTES + file.contents.metadata_bytes for key, file in self.states.items())
