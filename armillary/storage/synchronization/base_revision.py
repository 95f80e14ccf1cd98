"""Base revisions, through a cloud: an upload says which revision it was made from, and the server refuses to replace another.

The server numbers every accepted change. A client remembers for each path the revision that its file came from. If the server still has
that one, the upload replaces it; if not, nothing is overwritten, and the upload is kept as "name (conflicted copy)". An upload equal to
what is there is no conflict; an edit beats a delete that did not see it, either way round. Deletes are remembered for ever. A repeated
request is recognised by its number and answered as before, and a file that changed again meanwhile waits for the answer to its last
upload. A rename is a delete and a create; groups are not known to it.

Dropbox works in this way (I. Drago et al., Inside Dropbox: understanding personal cloud storage services, IMC 2012; the developer guide on
revisions, 2015). The messages are our design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from armillary.parameters import parameter

from .replicas.star_server import TellingServer
from .world.protocol import HEADER_BYTES, RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written
from .world.schedule import SERVER


@dataclass(frozen=True)
class BaseRevision(SyncProtocol):
    """Uploads carry the revision they were based on; a mismatch becomes a conflicted copy (as Dropbox, 2012)."""

    debounce: float = parameter(1.0, "seconds between a change and its upload", range=(0.0, 3600.0))
    retry: float = parameter(10.0, "seconds without an answer after which a request is repeated", range=(0.1, 3600.0))

    topology: ClassVar[Literal["star", "mesh"]] = "star"

    def node(self, host: Host) -> Node:
        """Makes a client."""
        return RevisionClient(host, self)

    def server(self, host: Host) -> Node:
        """Makes the cloud."""
        return RevisionServer(host, self)


class Record(NamedTuple):
    """A path as the server has it; `content` is None if it is deleted. `ops` is the simulator's stamp."""

    path: str
    revision: int
    content: Content | None
    ops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + len(self.path) + (self.content.size if self.content else 0)


class Answer(NamedTuple):
    """What the server did with an upload: where the upload is now (None if it was a delete), and what the path has."""

    copy: Record | None
    current: Record


class RevisionServer(TellingServer):
    """Keeps one record for each path; a change of it is numbered."""

    def __init__(self, host: Host, how: BaseRevision) -> None:
        super().__init__(host, how.retry)
        self.records: dict[str, Record] = {}
        self.count = 0
        #: The paths in the order of their last change; each client's last answers; and what each client is known to have seen.
        self.changed: dict[str, int] = {}
        self.answered: dict[str, dict[int, Answer]] = {peer: {} for peer in host.peers}
        self.seen = dict.fromkeys(host.peers, 0)

    def receive(self, sender: str, message: Message) -> None:
        """Takes uploads and requests for changes."""
        if message.kind == "upload":
            number, oldest, path, base, content, ops = message.body
            known = self.answered[sender]
            for done in [n for n in known if n < oldest]:
                del known[done]
            if number < oldest:
                return
            if number not in known:
                known[number] = self._take(sender, path, base, content, ops)
            answer = known[number]
            # The client has the content of its own upload, but needs that of another.
            other = answer.current if answer.current is not answer.copy else None
            size = HEADER_BYTES + RECORD_BYTES + (other.bytes if other else 0)
            self.host.send(sender, Message("answer", (number, path, answer), size, frozenset({path})))
        elif message.kind == "seen":
            self._has_seen(sender, message.body)
        elif message.kind == "fetch":
            since = message.body
            self._has_seen(sender, since)
            new = []
            for path, count in reversed(self.changed.items()):
                if count <= since:
                    break
                new.append(self.records[path])
            size = HEADER_BYTES + sum(record.bytes for record in new)
            self.host.send(sender, Message("changes", (since, self.count, tuple(new[::-1])), size, frozenset(r.path for r in new)))

    def _take(self, sender: str, path: str, base: int, content: Content | None, ops: tuple[int, ...]) -> Answer:
        held = self.records.get(path) or Record(path, 0, None, ())
        if base == held.revision:
            made = self._keep(sender, path, content, ops)
            return Answer(made, made)
        if content == held.content:
            return Answer(held, held)
        if content is None:
            return Answer(None, held)
        if held.content is None:
            made = self._keep(sender, path, content, ops)
            return Answer(made, made)
        self.host.conflict(held.ops, ops)
        return Answer(self._keep(sender, self._free(path), content, ops), held)

    def _free(self, path: str) -> str:
        number = 1
        while True:
            name = f"{path} (conflicted copy{f' {number}' if number > 1 else ''})"
            if name not in self.records:
                return name
            number += 1

    def _keep(self, sender: str, path: str, content: Content | None, ops: tuple[int, ...]) -> Record:
        self.count += 1
        self.records[path] = record = Record(path, self.count, content, ops)
        self.changed.pop(path, None)
        self.changed[path] = self.count
        for peer in self.host.peers:
            if peer != sender:
                self.tell(peer)
        return record

    def _has_seen(self, peer: str, count: int) -> None:
        self.may_tell(peer)
        self.seen[peer] = max(self.seen[peer], count)

    def news(self) -> Message:
        """Returns how far the changes go."""
        return Message("changed", self.count)

    def is_behind(self, peer: str) -> bool:
        """Returns whether changes came after what the client has seen."""
        return self.seen[peer] < self.count

    def metadata_bytes(self) -> int:
        """Returns the bytes of one record per path; deleted paths stay for ever."""
        return sum(RECORD_BYTES + len(path) for path in self.records)


class Entry(NamedTuple):
    """A path as the client has it: what it shows, the revision that this was made from, and whether the server lacks it."""

    content: Content | None
    ops: tuple[int, ...]
    revision: int
    dirty: bool


class RevisionClient:
    """A folder, and for each path the revision that it came from."""

    def __init__(self, host: Host, how: BaseRevision) -> None:
        self.host, self.how = host, how
        self.entries: dict[str, Entry] = {}
        self.dirty: dict[str, float] = {}
        self.since = 0
        #: Uploads without an answer yet: number -> (path, the entry as it was sent); and the number by path.
        self.sent: dict[int, tuple[str, Entry]] = {}
        self.sending: dict[str, int] = {}
        #: Changes of others that came while we had one of our own.
        self.missed: dict[str, Record] = {}
        self._number = 0
        self._fetching = self._stale = self._up = self._waking = False

    def local(self, act: Act) -> bool:
        """Changes the folder at once; the upload follows."""
        op = act.operation
        entry = self.entries.get(op.path)
        if op.op in ("write", "append"):
            self._set(op.path, written(act, entry.content if entry else None), (act.number,))
        elif op.op == "delete":
            self._set(op.path, None, (act.number,))
        elif op.op == "rename" and entry is not None:
            self._set(op.to, entry.content, (*entry.ops, act.number))
            self._set(op.path, None, (*entry.ops, act.number))
        return True

    def _set(self, path: str, content: Content | None, ops: tuple[int, ...]) -> None:
        held = self.entries.get(path)
        self.entries[path] = Entry(content, ops, held.revision if held else 0, True)
        self.dirty[path] = self.host.now()
        self.host.after(self.how.debounce, self._work)

    def _work(self) -> None:
        """Sends what is ripe, and asks for changes if there are any."""
        if not self._up:
            return
        now = self.host.now()
        for path, t in list(self.dirty.items()):
            if path not in self.sending and now - t >= 0.999 * self.how.debounce:
                self._number += 1
                self.sent[self._number] = (path, self.entries[path])
                self.sending[path] = self._number
                self._upload(self._number)
        if self._stale and not self._fetching:
            self._fetch()

    def _fetch(self) -> None:
        self._stale, self._fetching = False, True
        self.host.send(SERVER, Message("fetch", self.since))
        self._again_later()

    def _upload(self, number: int) -> None:
        path, entry = self.sent[number]
        size = HEADER_BYTES + RECORD_BYTES + len(path) + (entry.content.size if entry.content else 0)
        body = (number, min(self.sent), path, entry.revision, entry.content, entry.ops)
        self.host.send(SERVER, Message("upload", body, size, frozenset({path})))
        self._again_later()

    def _again_later(self) -> None:
        if not self._waking:
            self._waking = True
            self.host.after(self.how.retry, self._again)

    def _again(self) -> None:
        """Repeats what has no answer, as the same request."""
        self._waking = False
        if self._up:
            for number in list(self.sent):
                self._upload(number)
            if self._fetching:
                self._fetch()

    def receive(self, sender: str, message: Message) -> None:
        """Answers, changes, and the word that there are some."""
        if message.kind == "changed":
            if message.body <= self.since:
                self.host.send(SERVER, Message("seen", self.since))
            else:
                self._stale = True
        elif message.kind == "answer":
            number, path, answer = message.body
            if number in self.sent:
                self._answered(number, path, answer)
        elif message.kind == "changes":
            since, count, records = message.body
            self._fetching = False
            if since <= self.since <= count:
                for record in records:
                    self._take(record)
                self.since = count
        self._work()

    def _answered(self, number: int, path: str, answer: Answer) -> None:
        """Notes that the upload is at its place or aside as a copy; what was written since goes where it went."""
        _, sent = self.sent.pop(number)
        del self.sending[path]
        mine = self.entries[path]
        unchanged = mine.content == sent.content and mine.ops == sent.ops
        if answer.copy is None:
            # Our delete met an edit that it had not seen. What the user wrote since stays, on top of that edit.
            self.entries[path] = mine._replace(revision=sent.revision)
            if unchanged:
                self._show(answer.current)
        elif answer.copy.path == path:
            self.entries[path] = mine._replace(revision=answer.copy.revision, dirty=not unchanged)
            if unchanged:
                self.dirty.pop(path, None)
        else:
            self._show(answer.copy)
            if not unchanged:
                self.entries[answer.copy.path] = Entry(mine.content, mine.ops, answer.copy.revision, True)
                self.dirty[answer.copy.path] = self.host.now() - self.how.debounce
            self._show(answer.current)
        if not self.entries[path].dirty and path in self.missed:
            self._take(self.missed.pop(path))

    def _take(self, record: Record) -> None:
        """Takes a change of another client. A file with changes of its own keeps them, and its upload will find out."""
        mine = self.entries.get(record.path)
        if mine is not None and mine.dirty:
            self.missed[record.path] = record
        elif mine is None or record.revision > mine.revision:
            self._show(record)

    def _show(self, record: Record) -> None:
        self.entries[record.path] = Entry(record.content, record.ops, record.revision, False)
        self.dirty.pop(record.path, None)
        self.host.shows(record.ops)

    def link(self, peer: str, up: bool) -> None:
        """Repeats and asks what changed when the link is back."""
        self._up = up
        if up:
            self._stale = True
            for number in list(self.sent):
                self._upload(number)
            self._fetching = False
            self._work()

    def round(self) -> None:
        """Asks what changed."""
        self._stale = True
        self._work()

    def status(self) -> str:
        """Says waiting while the server lacks something or an answer is out."""
        return "waiting" if self.dirty or self.sent or self._fetching or self._stale else "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows the one version there is, or the delete."""
        entry = self.entries.get(path)
        return (Shown(entry.ops, entry.content),) if entry else ()

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files."""
        return {path: (entry.content,) for path, entry in self.entries.items() if entry.content is not None}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether the server has it."""
        entry = self.entries.get(path)
        return entry is not None and not entry.dirty

    def metadata_bytes(self) -> int:
        """Returns the bytes of one record per path, deleted ones too."""
        return sum(RECORD_BYTES + len(path) for path in self.entries)
