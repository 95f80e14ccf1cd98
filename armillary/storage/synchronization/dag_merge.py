"""A graph of snapshots, as git keeps it: histories part and are merged against what they had in common.

Every change is a commit (a group is one commit, which appears whole or not at all). A client pushes its commits; the server moves its head
only forward, to a commit that has the old head among its ancestors, and refuses otherwise. A client that is refused fetches, merges its
head with the server's against their merge base, path by path and line by line, and pushes again. A conflict does not stop it, because both
sides are kept under the path, and the next write there resolves them. A file renamed here and edited there is followed by its content.
Nothing asks a clock.

L. Torvalds, J. C. Hamano, Git, 2005, in the way in which people let it run by itself with one common remote (gitwatch, git-annex
assistant). The merge is diff3 (S. Khanna, K. Kunal, B. C. Pierce, A formal investigation of diff3, FSTTCS 2007) over `snapshots`;
messages are our design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from armillary.parameters import parameter

from .replicas.snapshots import EMPTY_TREE, Commit, Entry, Kept, Tree, base_tree, commit, merge_bases, merge_trees
from .replicas.star_server import TellingServer
from .world.protocol import HEADER_BYTES, RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written
from .world.schedule import SERVER

ROOT = commit((), EMPTY_TREE, 0)
ID_BYTES = 16


@dataclass(frozen=True)
class DagMerge(SyncProtocol):
    """Snapshots merged three ways, conflicts kept with both sides (as git, 2005)."""

    debounce: float = parameter(1.0, "seconds between a commit and its push", range=(0.0, 3600.0))
    retry: float = parameter(10.0, "seconds without an answer after which a request is repeated", range=(0.1, 3600.0))

    topology: ClassVar[Literal["star", "mesh"]] = "star"

    def node(self, host: Host) -> Node:
        """Makes a clone with a working tree."""
        return DagClient(host, self)

    def server(self, host: Host) -> Node:
        """Makes the bare repository."""
        return DagServer(host, self)


class DagServer(TellingServer):
    """A head that moves forward, and the commits in the order in which they came."""

    def __init__(self, host: Host, how: DagMerge) -> None:
        super().__init__(host, how.retry)
        self.order: list[Commit] = [ROOT]
        self.place = {ROOT.id: 0}
        self.head = ROOT.id
        self.seen = dict.fromkeys(host.peers, ROOT.id)

    def receive(self, sender: str, message: Message) -> None:
        """Pushes, accepted if they were made on top of the head; and fetches."""
        if message.kind == "push":
            expected, commits = message.body
            head = commits[-1].id
            if self.head == expected:
                for one in commits:
                    if one.id not in self.place:
                        self.place[one.id] = len(self.order)
                        self.order.append(one)
                self.head = head
                for peer in self.host.peers:
                    if peer != sender:
                        self.tell(peer)
            accepted = head in self.place and self.place[head] <= self.place[self.head]
            self.host.send(sender, Message("pushed", (head, accepted, self.head), HEADER_BYTES + 2 * ID_BYTES))
        elif message.kind == "seen":
            self._has_seen(sender, message.body)
        elif message.kind == "fetch":
            self._has_seen(sender, message.body)
            new = tuple(self.order[self.place[message.body] + 1 : self.place[self.head] + 1])
            size = HEADER_BYTES + ID_BYTES + sum(one.bytes for one in new)
            self.host.send(sender, Message("commits", (message.body, new, self.head), size, _paths(new)))

    def _has_seen(self, peer: str, head: str) -> None:
        self.may_tell(peer)
        if self.place[head] > self.place[self.seen[peer]]:
            self.seen[peer] = head

    def news(self) -> Message:
        """Returns which commit is the head."""
        return Message("changed", self.head, HEADER_BYTES + ID_BYTES)

    def is_behind(self, peer: str) -> bool:
        """Returns whether the client has not seen the head."""
        return self.seen[peer] != self.head

    def metadata_bytes(self) -> int:
        """Returns the bytes of one record per commit."""
        return sum(RECORD_BYTES + ID_BYTES * len(one.parents) for one in self.order)


def _paths(commits: tuple[Commit, ...]) -> frozenset[str]:
    return frozenset().union(*(one.changed for one in commits))


class DagClient:
    """A clone: a working tree, a head, and the server's head as it was last heard of."""

    def __init__(self, host: Host, how: DagMerge) -> None:
        self.host, self.how = host, how
        self.history: dict[str, Commit] = {ROOT.id: ROOT}
        self.head = self.upstream = ROOT
        self.files: dict[str, Entry] = {}
        self.staged: dict[str, Entry | None] = {}
        #: Commits that the server is not known to have, oldest first.
        self.unpushed: list[Commit] = []
        self.split: set[str] = set()
        self._grouped = self._up = self._stale = self._fetching = self._waking = False
        self._pushing: str | None = None
        self._made = 0

    def local(self, act: Act) -> bool:
        """Changes the working tree at once, and commits: each change by itself, a group when it ends."""
        op = act.operation
        here = self.files.get(op.path, ())
        if op.op == "begin":
            self._grouped = True
        elif op.op == "end":
            self._grouped = False
        elif op.op in ("write", "append"):
            self._stage(op.path, (Kept(written(act, here[0].content if here else None), (act.number,)),))
        elif op.op == "delete":
            self._stage(op.path, None)
        elif op.op == "rename":
            self._stage(op.to, tuple(Kept(k.content, (*k.ops, act.number)) for k in here))
            self._stage(op.path, None)
        if not self._grouped:
            if self.staged:
                self._commit()
            self.host.after(self.how.debounce, self._work)
        return True

    def _stage(self, path: str, entry: Entry | None) -> None:
        self.staged[path] = entry
        self._put(path, entry)

    def _put(self, path: str, entry: Entry | None) -> None:
        if entry:
            self.files[path] = entry
        else:
            self.files.pop(path, None)
        if entry and len(entry) > 1:
            self.split.add(path)
        else:
            self.split.discard(path)

    def _commit(self) -> None:
        self._made += 1
        size = RECORD_BYTES + sum(len(p) + ID_BYTES + sum(k.content.size for k in e or ()) for p, e in self.staged.items())
        mark = f"{self.host.name}/{self._made}"
        made = commit((self.head,), self.head.tree.with_changes(self.staged), size, frozenset(self.staged), mark)
        self.staged = {}
        self._advance(made)

    def _advance(self, made: Commit) -> None:
        self.history[made.id] = self.head = made
        self.unpushed.append(made)

    def _work(self) -> None:
        """Fetches if the server has moved, else pushes if it lacks something; one request at a time."""
        if not self._up or self._grouped or self._fetching or self._pushing is not None:
            return
        if self._stale:
            self._fetch()
        elif self.unpushed:
            self._push()

    def _fetch(self) -> None:
        self._stale, self._fetching = False, True
        self.host.send(SERVER, Message("fetch", self.upstream.id, HEADER_BYTES + ID_BYTES))
        self._again_later()

    def _push(self) -> None:
        new = tuple(self.unpushed)
        self._pushing = new[-1].id
        size = HEADER_BYTES + ID_BYTES + sum(one.bytes for one in new)
        self.host.send(SERVER, Message("push", (self.upstream.id, new), size, _paths(new)))
        self._again_later()

    def _again_later(self) -> None:
        if not self._waking:
            self._waking = True
            self.host.after(self.how.retry, self._again)

    def _again(self) -> None:
        """Asks again; an answer to what was asked before is as good."""
        self._waking = False
        if self._up and (self._fetching or self._pushing is not None):
            self._stale = self._stale or self._fetching
            self._fetching, self._pushing = False, None
            self._work()

    def receive(self, sender: str, message: Message) -> None:
        """Answers, and the word that the server has moved."""
        if message.kind == "changed":
            if message.body == self.upstream.id:
                self.host.send(SERVER, Message("seen", message.body, HEADER_BYTES + ID_BYTES))
            else:
                self._stale = True
        elif message.kind == "pushed":
            head, accepted, theirs = message.body
            if head == self._pushing:
                self._pushing = None
            if accepted and any(one.id == head for one in self.unpushed):
                self._server_has(self.history[head])
            self._stale = self._stale or theirs != self.upstream.id
        elif message.kind == "commits":
            since, new, head = message.body
            self._fetching = False
            if self._grouped:
                # A merge waits until the group is whole.
                self._stale = True
            elif since == self.upstream.id:
                self._fetched(new, head)
        self._work()

    def _server_has(self, head: Commit) -> None:
        place = [one.id for one in self.unpushed].index(head.id)
        del self.unpushed[: place + 1]
        self.upstream = head

    def _fetched(self, new: tuple[Commit, ...], head: str) -> None:
        for one in new:
            self.history[one.id] = one
        self.upstream = self.history[head]
        arrived = {one.id for one in new}
        self.unpushed = [one for one in self.unpushed if one.id not in arrived]
        self._merge()

    def _merge(self) -> None:
        """Brings head and upstream together: forward if one has the other, else by a merge commit."""
        before = self.head
        bases = merge_bases(self.history, self.head, self.upstream)
        if self.upstream in bases:
            return
        if self.head in bases:
            self.head = self.upstream
        else:
            merged = merge_trees(base_tree(self.history, self.head, self.upstream), self.head.tree, self.upstream.tree)
            for mine, theirs in merged.conflicts:
                self.host.conflict(mine.ops, theirs.ops)
            own = merged.tree.differing(self.head.tree) & merged.tree.differing(self.upstream.tree)
            self._advance(commit((self.head, self.upstream), merged.tree, _merge_bytes(merged.tree, own), frozenset(own)))
        self._show(before.tree)

    def _show(self, before: Tree) -> None:
        for path in sorted(before.differing(self.head.tree)):
            entry = self.head.tree.get(path)
            self._put(path, entry)
            for kept in entry or ():
                self.host.shows(kept.ops)

    def link(self, peer: str, up: bool) -> None:
        """Asks whether the server has moved when the link is back."""
        self._up = up
        if up:
            self._stale, self._fetching, self._pushing = True, False, None
            self._work()

    def round(self) -> None:
        """Asks whether the server has moved."""
        self._stale = True
        self._work()

    def status(self) -> str:
        """Says conflict where a path has several versions, and waiting while the server may lack something."""
        if self.split:
            return "conflict"
        waits = self.unpushed or self.staged or self._stale or self._fetching or self._pushing is not None
        return "waiting" if waits else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows all versions at the path."""
        return tuple(Shown(kept.ops, kept.content) for kept in self.files.get(path, ()))

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns the working tree."""
        return {path: tuple(kept.content for kept in entry) for path, entry in self.files.items()}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether the server's tree has it as it is here."""
        return self.files.get(path) == self.upstream.tree.get(path)

    def metadata_bytes(self) -> int:
        """Returns the bytes of one record per commit, and of the index of the working tree."""
        commits = sum(RECORD_BYTES + ID_BYTES * len(one.parents) for one in self.history.values())
        return commits + sum(RECORD_BYTES + len(path) for path in self.files)


def _merge_bytes(tree: Tree, own: set[str]) -> int:
    """Returns the bytes of a merge, which are its record and the contents that neither side had."""
    return RECORD_BYTES + ID_BYTES + sum(k.content.size for path in own for k in tree.get(path) or ())
