"""Versions cross a link as a transaction that both ends have or neither has, and nothing is guessed from clocks or silence.

Why iCloud Fails: The Category Mistake of Cloud Synchronization, arXiv 2602.19433 (2026). The paper argues and specifies no
file synchronisation protocol; this is **our design** in its spirit. The store keeps the graph of versions
(`versions`), a link moves sets of them (`link_register`).
A group travels and appears whole. A delete is a version, and stays a head until everyone is known to have it. Several heads of a file are
all shown.
It cannot show an edit elsewhere during a partition, and a last COMMIT may stay in doubt until the link is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from armillary.arena import Claim, Gain, Kind, Level
from armillary.parameters import parameter

from .replicas.link_register import LinkEnd, Phase
from .replicas.versions import ID_BYTES, Item, Version, VersionStore, version
from .world.protocol import RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written

_SOURCE = "arXiv 2602.19433, read as a test; the paper's claims are qualitative"
#: Every built-in case in which somebody is cut off while others work; the claim is made for each.
_PARTITIONED = tuple(
    Kind(name) for name in ("pair", "laptop", "long-offline", "skewed-clocks", "flapping", "rename-storm", "evicting", "year")
)


@dataclass(frozen=True)
class TransactionalLink(SyncProtocol):
    """Why iCloud Fails: The Category Mistake of Cloud Synchronization, as link transactions; our design."""

    automerge: bool = parameter(True, "merge two heads where names and lines do not clash")
    retry: float = parameter(10.0, "seconds after which an unanswered message is repeated", range=(0.1, 3600.0))

    claims = (
        Claim("lost_updates", over="lww-cloud", by=Gain(difference=(1.0, None)), on=Kind("partition"), source=_SOURCE,
              says="last writer wins loses concurrent work under partition; a causal graph over link transactions does not"),
        Claim("lost_updates", over="lww-cloud", by=Gain(difference=(1.0, None)), on=_PARTITIONED, source=_SOURCE,
              says="the same on every one of the cases with a partition"),
        Claim("lost_updates", by=Level(at_most=0.0), says="no update is lost on any case", source=_SOURCE),
        Claim("silent_divergence", over="lww-cloud", by=Gain(difference=(1.0, None)), on=Kind("unreliable"),
              says="replicas under last writer wins drift apart while all say in sync", source=_SOURCE),
        Claim("silent_divergence", by=Level(at_most=0.0), says="no silent divergence on any case", source=_SOURCE),
        Claim("torn_groups", by=Level(at_most=0.0), says="no intermediate state leaks", source=_SOURCE),
        Claim("resurrected", by=Level(at_most=0.0), says="recovery brings no deleted file back", source=_SOURCE),
        Claim("duplicates", by=Level(at_most=0.0), says="a retry is not applied twice", source=_SOURCE),
        Claim("spurious_conflicts", by=Level(at_most=0.0), says="no conflict between ordered versions", source=_SOURCE),
        Claim("visible_delay_s", over="version-vector", by=Gain(ratio=(1 / 3, None)), on=Kind("team"), source="ours",
              says="safety costs at most three times the delay of version vectors"),
        Claim("traffic_bytes", over="version-vector", by=Gain(ratio=(1 / 3, None)), on=Kind("team"), source="ours",
              says="safety costs at most three times the traffic of version vectors"),
    )  # fmt: skip

    def node(self, host: Host) -> Node:
        """Makes a replica."""
        return LinkNode(host, self)


class LinkNode:
    """A replica: a store of versions and one register for each link."""

    def __init__(self, host: Host, how: TransactionalLink) -> None:
        self.host, self.how = host, how
        self.store = VersionStore(host.name)
        self.changed = self.store.changed
        self.links = {peer: LinkEnd(self.store, host.name < peer, self._show) for peer in host.peers}
        self._up = dict.fromkeys(host.peers, False)
        self._retrying = dict.fromkeys(host.peers, False)
        self._made = 0
        #: Deletes that are still heads, with the place in the log up to which we looked for them.
        self._deletes: list[Item] = []
        self._looked = 0

    def local(self, act: Act) -> bool:
        """Makes versions above what the user saw; links that are up get them at once, a group when it ends."""
        op = act.operation
        if op.op == "begin":
            self.store.limit = self.store.counts.get(self.host.name, 0)
        elif op.op == "end":
            self.store.limit = None
        elif op.op not in ("mkdir", "rmdir"):
            self._change(act)
        if self.store.limit is None:
            self._pump_all()
        return True

    def _change(self, act: Act) -> None:
        op, ops = act.operation, (act.number,)
        seen = self.store.shown(op.path)
        live = [v for v in seen if v.content is not None]
        file = min((v.file for v in live), default="")
        self._made += 1
        salt = f"{self.host.name}/{self._made}"
        if op.op == "rename":
            for v in live:
                deletes = [d.id for d in seen if d.content is None and d.file == v.file]
                self.store.create(version((v.id, *deletes), v.file, op.to, v.content, op.group, (*v.ops, *ops)))
            return
        content = None if op.op == "delete" else written(act, live[0].content if live else None)
        self.store.create(version((v.id for v in seen), file, op.path, content, op.group, ops, salt))

    def _show(self, items: tuple[Item, ...]) -> list[Version]:
        """Makes a whole set visible at one instant, then merges what merges cleanly."""
        new = self.store.insert(items)
        for one in new:
            self.host.shows(one.ops)
        ids = {one.id for one in new}
        for file in dict.fromkeys([one.file for one in new]):
            self._reconcile(file, ids)
        self._forget_deletes()
        return new

    def _reconcile(self, file: str, new: set[str]) -> None:
        ids = self.store.heads.get(file, ())
        if len(ids) < 2:
            return
        heads = [self.store.versions[i] for i in sorted(ids)]
        if self.how.automerge and len(heads) == 2:
            merged = self.store.merged(*heads)
            if merged is not None:
                self.store.create(merged)
                return
        for one in heads:
            for other in heads:
                if one.id in new and other.id < one.id and (one.content is not None or other.content is not None):
                    self.host.conflict(one.ops, other.ops)

    def _forget_deletes(self) -> None:
        """Forgets a delete that is its file's only head once every replica has it and we have all that any of them had then.

        We cannot know what a replica without a link to us has, so deletes stay while there is one.
        """
        log = self.store.log
        self._deletes += [log[i] for i in range(self._looked, len(log)) if log[i][1].content is None]
        self._looked = len(log)
        counts = self.store.counts
        if not self._deletes or any(author not in self.links and author != self.host.name for author in counts):
            return
        summaries = [link.theirs for link in self.links.values()]
        for theirs in summaries:
            if theirs != counts:
                for author, count in theirs.items():
                    if count > counts.get(author, 0):
                        return
        kept = []
        for (author, number), one in self._deletes:
            alone = self.store.heads.get(one.file) == {one.id}
            if alone and all(theirs.get(author, 0) >= number for theirs in summaries):
                self.store.forget(one)
            elif one.id in self.store.heads.get(one.file, ()):
                kept.append(((author, number), one))
        self._deletes = kept

    def receive(self, sender: str, message: Message) -> None:
        """Hands it to the link's end; then offers what is new to whoever lacks it."""
        link = self.links[sender]
        before = len(self.store.log)
        for answer in link.receive(message):
            self.host.send(sender, answer)
        if len(self.store.log) > before:
            for peer in self.host.peers:
                self._retry_later(peer)
        if message.kind != "resume" and not link.is_open:
            self._send(sender, link.offer())

    def _pump_all(self) -> None:
        for peer in self.host.peers:
            self._pump(peer)

    def _pump(self, peer: str) -> None:
        """Offers our own news at once. News of others the peer may have had from them: its summary is asked for first."""
        link = self.links[peer]
        if not self._up[peer] or link.is_open:
            return
        out = self.store.beyond(link.theirs)
        if not out:
            return
        if any(author != self.host.name for (author, _), _ in out):
            self._send(peer, link.reconnect())
        else:
            self._send(peer, link.offer())

    def _send(self, peer: str, messages: list[Message]) -> None:
        for message in messages:
            self.host.send(peer, message)
        if messages:
            self._retry_later(peer)

    def _retry_later(self, peer: str) -> None:
        if not self._retrying[peer]:
            self._retrying[peer] = True
            self.host.after(self.how.retry, self._retry, peer)

    def _retry(self, peer: str) -> None:
        """Repeats what is open and decides nothing."""
        self._retrying[peer] = False
        if not self._up[peer]:
            return
        link = self.links[peer]
        if link.is_open:
            self._send(peer, link.again())
            if link.register.phase is Phase.HELD:
                self._retry_later(peer)
        else:
            self._pump(peer)

    def link(self, peer: str, up: bool) -> None:
        """Keeps the register as it is when the link goes down; when it comes up, both ends ask for the other's."""
        self._up[peer] = up
        if up:
            self._send(peer, self.links[peer].reconnect())

    def round(self) -> None:
        """Repeats what is open, and asks every peer for its summary."""
        for peer, link in self.links.items():
            if self._up[peer]:
                self._send(peer, link.again() if link.is_open else link.reconnect())

    def conflicts(self) -> list[str]:
        """Returns the paths under which several heads are shown."""
        return [path for path, contents in self.tree().items() if len(contents) > 1 or self._is_split(path)]

    def _is_split(self, path: str) -> bool:
        """Returns whether a file that is there has another head, maybe a delete; the delete of another file at this path is no conflict."""
        here = (self.store.versions[i] for i in self.store.at_path.get(path, ()))
        return any(len(self.store.heads[one.file]) > 1 for one in here if one.content is not None)

    def status(self) -> str:
        """Says "in sync" only if no link has anything open, both its ends have the same versions, and no file has two heads."""
        if any(link.register.phase is Phase.COMMITTING for link in self.links.values()):
            return "in doubt"
        mine = self.store.counts
        if any(link.is_open or link.theirs != mine for link in self.links.values()):
            return "waiting"
        return "conflict" if self.conflicts() else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows all heads there, deletes too."""
        return tuple(Shown(v.ops, v.content) for v in self.store.shown(path))

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files with all heads."""
        found: dict[str, tuple[Content, ...]] = {}
        for path, ids in self.store.at_path.items():
            contents = (self.store.versions[i].content for i in sorted(ids))
            live = tuple(content for content in contents if content is not None)
            if live:
                found[path] = live
        return found

    def contents(self, place: str) -> Iterable[Content]:
        """Returns the contents of the heads at a path."""
        found = (self.store.versions[i].content for i in self.store.at_path.get(place, ()))
        return [content for content in found if content is not None]

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether some peer has all heads that are there."""
        dots = [self.store.dots[i] for i in self.store.at_path.get(path, ())]
        return any(all(link.theirs.get(author, 0) >= number for author, number in dots) for link in self.links.values())

    def metadata_bytes(self) -> int:
        """Returns the bytes of the graph, every version's record and parents; contents of old versions are not counted."""
        return sum(RECORD_BYTES + ID_BYTES * len(v.parents) + len(v.path) for v in self.store.versions.values())
