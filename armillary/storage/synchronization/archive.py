"""Archives: two sides remember the state that they last had in common, and only the side that left it has changed.

For each pair of roots both keep an archive: path -> content at the last agreement. At a synchronisation each side lists the paths that
differ from it. What changed on one side only is copied to the other (a delete too), and what changed on both to the same is agreed. What
changed on both to different things is skipped and reported, and left as it is on both sides until a person decides. Nothing is overwritten
that is not what was listed: a file that changes between the listing and the copying is left for the next time. An agreement is numbered,
and of two archives that differ because a message was lost the one with the later number is right: both sides had that content then.

Every client has one partner, a server that is a root like any other, as the manual advises for more than two replicas. A change
starts a synchronisation, as `-repeat watch` does. A rename is a delete and a create; groups are not known to it.

B. C. Pierce, J. Vouillon, What's in Unison? A formal specification and reference implementation of a file synchronizer, University of
Pennsylvania, 2004; S. Balasubramaniam, B. C. Pierce, What is a file synchronizer?, MobiCom 1998. The messages are our design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from armillary.parameters import parameter

from .replicas.star_server import StarServer
from .world.protocol import HEADER_BYTES, RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written
from .world.schedule import SERVER


@dataclass(frozen=True)
class Archive(SyncProtocol):
    """Both sides are compared with the last common state, and conflicts are skipped and reported (Unison, 1998)."""

    debounce: float = parameter(1.0, "seconds between a change and the synchronisation", range=(0.0, 3600.0))
    retry: float = parameter(10.0, "seconds without an answer after which it starts anew", range=(0.1, 3600.0))

    topology: ClassVar[Literal["star", "mesh"]] = "star"

    def node(self, host: Host) -> Node:
        """Makes a root with a user, which starts the synchronisations with the server."""
        return ArchiveClient(host, self)

    def server(self, host: Host) -> Node:
        """Makes the root in the middle."""
        return ArchiveServer(host)


class Stamped(NamedTuple):
    """A path's content, or None where there is no file and only its stamp is kept; `ops` is the simulator's stamp."""

    content: Content | None
    ops: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + (self.content.size if self.content else 0)


class Agreed(NamedTuple):
    """What both sides had, and in which synchronisation."""

    number: int = 0
    content: Content | None = None


class Report(NamedTuple):
    """A path in a listing: what is there now, and what the archive says."""

    now: Stamped
    agreed: Agreed


NOTHING = Stamped(None)
NEVER = Agreed()


class Root:
    """A folder, the archive that it shares with one partner, and the paths that have left it."""

    def __init__(self, files: dict[str, Stamped]) -> None:
        self.files = files
        self.archive: dict[str, Agreed] = {}
        self.left: dict[str, None] = {}
        #: Paths on which the other side may have agreed while we have not heard so.
        self.doubtful: dict[str, None] = {}

    def noticed(self, path: str) -> None:
        """Notes whether `path`, where something happened, is as agreed."""
        if self.files.get(path, NOTHING).content != self.archive.get(path, NEVER).content:
            self.left[path] = None
        else:
            self.left.pop(path, None)

    def agree(self, path: str, agreed: Agreed) -> None:
        """Takes an agreement into the archive, unless it has a later one."""
        if agreed.number >= self.archive.get(path, NEVER).number:
            self.archive[path] = agreed
            self.noticed(path)

    def settle(self, path: str, agreed: Agreed) -> None:
        """Does what `agree` does, once both sides know of it."""
        self.agree(path, agreed)
        self.doubtful.pop(path, None)

    def report(self, path: str) -> Report:
        """Returns the path as a listing says it."""
        return Report(self.files.get(path, NOTHING), self.archive.get(path, NEVER))

    def metadata_bytes(self) -> int:
        """Returns the bytes of the archive's living paths."""
        return sum(RECORD_BYTES + len(path) for path, agreed in self.archive.items() if agreed.content is not None)


def _listed_bytes(reports: Mapping[str, Report], contents: Iterable[str] = ()) -> int:
    """Records of all paths, and the contents of some."""
    return sum(len(path) + RECORD_BYTES for path in reports) + sum(reports[path].now.bytes for path in contents)


class ArchiveServer(StarServer):
    """The partner of every client: it lists, and copies what the client decided if nothing has changed since."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.files: dict[str, Stamped] = {}
        self.roots = {peer: Root(self.files) for peer in host.peers}
        self.latest = dict.fromkeys(host.peers, 0)

    def receive(self, sender: str, message: Message) -> None:
        """Takes a listing to answer, or decisions to carry out."""
        root, number = self.roots[sender], message.body[0]
        if number < self.latest[sender]:
            return
        self.latest[sender] = number
        if message.kind == "listing":
            listed: Mapping[str, Report] = message.body[1]
            for path, theirs in listed.items():
                root.agree(path, theirs.agreed)
            root.doubtful.update(root.left)
            reports = {path: root.report(path) for path in dict.fromkeys((*listed, *root.doubtful))}
            size = HEADER_BYTES + _listed_bytes(reports, root.left)
            self.host.send(sender, Message("answer", (number, reports), size, frozenset(root.left)))
        elif message.kind == "decided":
            _, copies, agreed = message.body
            for path, content in agreed.items():
                root.settle(path, Agreed(number, content))
            done = []
            for path, (expected, new) in copies.items():
                here = self.files.get(path, NOTHING)
                if here.content == new.content or here.content == expected:
                    if here.content != new.content:
                        self._set(path, new, sender)
                    root.settle(path, Agreed(number, new.content))
                    done.append(path)
            self.host.send(sender, Message("copied", (number, tuple(done)), HEADER_BYTES + sum(map(len, done))))

    def _set(self, path: str, new: Stamped, sender: str) -> None:
        self.files[path] = new
        for peer, root in self.roots.items():
            root.noticed(path)
            if peer != sender and self._up[peer]:
                self.host.send(peer, Message("changed", (0,)))

    def metadata_bytes(self) -> int:
        """Returns the bytes of all archives."""
        return sum(root.metadata_bytes() for root in self.roots.values())


class ArchiveClient:
    """A root with a user, which decides each synchronisation."""

    def __init__(self, host: Host, how: Archive) -> None:
        self.host, self.how = host, how
        self.files: dict[str, Stamped] = {}
        self.root = Root(self.files)
        self.skipped: set[str] = set()
        self.number = 0
        self._open = self._decided = self._wanted = self._up = False
        self._copies: dict[str, tuple[Content | None, Stamped]] = {}

    def local(self, act: Act) -> bool:
        """Changes the folder at once; a synchronisation follows."""
        op = act.operation
        here = self.files.get(op.path, NOTHING)
        if op.op in ("write", "append"):
            self._set(op.path, Stamped(written(act, here.content), (act.number,)))
        elif op.op == "delete":
            self._set(op.path, Stamped(None, (act.number,)))
        elif op.op == "rename":
            self._set(op.to, Stamped(here.content, (*here.ops, act.number)))
            self._set(op.path, Stamped(None, (*here.ops, act.number)))
        else:
            return True
        self._wanted = True
        self.host.after(self.how.debounce, self._begin)
        return True

    def _set(self, path: str, new: Stamped) -> None:
        self.files[path] = new
        self.root.noticed(path)

    def _begin(self) -> None:
        """Lists what has left the archive here; contents follow only where they are needed."""
        if self._open or not self._wanted or not self._up:
            return
        self._open, self._decided, self._wanted = True, False, False
        self.number += 1
        self._copies = {}
        reports = {path: self.root.report(path) for path in dict.fromkeys((*self.root.left, *self.root.doubtful, *self.skipped))}
        self.host.send(SERVER, Message("listing", (self.number, reports), HEADER_BYTES + _listed_bytes(reports)))
        self.host.after(self.how.retry, self._late, self.number)

    def _late(self, number: int) -> None:
        """Starts anew when no answer came; the archives tell what was done."""
        if self._open and number == self.number:
            self._open, self._wanted = False, True
            self._begin()

    def receive(self, sender: str, message: Message) -> None:
        """Takes the server's listing, its word that it copied, or its word that something changed there."""
        if message.kind == "changed":
            self._wanted = True
        elif self._open and message.body[0] == self.number:
            if message.kind == "answer" and not self._decided:
                self._decide(message.body[1])
            elif message.kind == "copied" and self._decided:
                for path in message.body[1]:
                    self.root.settle(path, Agreed(self.number, self._copies[path][1].content))
                if len(message.body[1]) < len(self._copies):
                    self._wanted = True
                self._open = False
        self._begin()

    def _decide(self, reports: Mapping[str, Report]) -> None:
        """Decides for each path whether it goes to the server, comes from it, is agreed, or is a conflict that is skipped."""
        self._decided = True
        agreed: dict[str, Content | None] = {}
        skipped: set[str] = set()
        for path, theirs in reports.items():
            self.root.agree(path, theirs.agreed)
            common = self.root.archive.get(path, NEVER).content
            mine = self.files.get(path, NOTHING)
            if mine.content == theirs.now.content:
                agreed[path] = mine.content
            elif theirs.now.content == common:
                self._copies[path] = (common, mine)
                self.root.doubtful[path] = None
            elif mine.content == common:
                self._set(path, theirs.now)
                self.host.shows(theirs.now.ops)
                agreed[path] = theirs.now.content
            else:
                skipped.add(path)
                if path not in self.skipped:
                    self.host.conflict(mine.ops, theirs.now.ops)
        self.skipped = (self.skipped - set(reports)) | skipped
        for path, content in agreed.items():
            self.root.settle(path, Agreed(self.number, content))
        if not self._copies and not agreed:
            self._open = False
            return
        size = HEADER_BYTES + sum(len(p) + new.bytes for p, (_, new) in self._copies.items()) + sum(len(p) + 16 for p in agreed)
        paths = frozenset(path for path, (_, new) in self._copies.items() if new.content is not None)
        self.host.send(SERVER, Message("decided", (self.number, self._copies, agreed), size, paths))

    def link(self, peer: str, up: bool) -> None:
        """Synchronises when the link is back."""
        self._up = up
        if up:
            self._open, self._wanted = False, True
            self._begin()

    def round(self) -> None:
        """Synchronises."""
        self._wanted = True
        self._begin()

    def status(self) -> str:
        """Says conflict where something was skipped, and waiting while a synchronisation is open or due."""
        if self.skipped:
            return "conflict"
        return "waiting" if self._open or self._wanted or self.root.left or self.root.doubtful else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows the one version there is, or the delete."""
        here = self.files.get(path)
        return (Shown(here.ops, here.content),) if here is not None else ()

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files."""
        return {path: (here.content,) for path, here in self.files.items() if here.content is not None}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether the server has agreed to it."""
        return path not in self.root.left

    def metadata_bytes(self) -> int:
        """Returns the bytes of the archive, in which a path that both sides agree is gone needs no line."""
        return self.root.metadata_bytes()
