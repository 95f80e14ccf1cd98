"""Last writer wins, through a cloud: the newer time stamp stays, and the client's own clock makes the stamps.

A watcher uploads changed files one by one, in no particular order, a while after they changed. An upload without an answer is sent again as
a new operation, with a new stamp. After several failures the client forgets what it knew of the server and starts from a listing, and
uploads what the server does not list. Deletes are remembered for thirty days. A rename is a delete and a create. Errors go to a log; the
status says in sync.

The time-stamp rule is the one of R. H. Thomas, A majority consensus approach to concurrency control for multiple copy databases, TODS 1979;
the client's habits are those that Why iCloud Fails (arXiv 2602.19433, 2026) describes. The code is our design.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from armillary.parameters import parameter

from .replicas.star_server import StarServer
from .world.protocol import HEADER_BYTES, RECORD_BYTES, Act, Content, Host, Message, Node, Shown, SyncProtocol, written
from .world.schedule import SERVER


@dataclass(frozen=True)
class LwwCloud(SyncProtocol):
    """Last writer wins through a server, stamped by the clients' clocks (Thomas's rule, 1979)."""

    debounce: float = parameter(2.0, "seconds between a change and its upload", range=(0.0, 3600.0))
    timeout: float = parameter(10.0, "seconds without an answer after which it is sent again", range=(0.1, 3600.0))
    failures: int = parameter(5, "failures after which the client starts from a listing", range=(1, 100))
    tombstone_days: float = parameter(30.0, "days for which the server remembers a delete", range=(0.0, 3650.0))

    topology: ClassVar[Literal["star", "mesh"]] = "star"

    def node(self, host: Host) -> Node:
        """Makes a client."""
        return LwwClient(host, self)

    def server(self, host: Host) -> Node:
        """Makes the cloud."""
        return LwwServer(host, self)


class Record(NamedTuple):
    """What the server keeps of a path; `content` is None if it is deleted. `ops` is the simulator's stamp."""

    path: str
    mtime: float
    content: Content | None
    ops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + len(self.path) + (self.content.size if self.content else 0)


class LwwServer(StarServer):
    """Keeps the newest record of each path and tells the other clients that something changed."""

    def __init__(self, host: Host, how: LwwCloud) -> None:
        super().__init__(host)
        self.how = how
        self.records: dict[str, Record] = {}
        #: The server's own count and time of the change that each record came with.
        self.changed: dict[str, tuple[int, float]] = {}
        self.count = 0
        #: Deletes, oldest first: when, the count that they came with, and the path.
        self._deletes: deque[tuple[float, int, str]] = deque()

    def receive(self, sender: str, message: Message) -> None:
        """Takes uploads, requests for changes, and requests for the whole listing."""
        if message.kind == "upload":
            number, record = message.body
            held = self.records.get(record.path)
            if held is None or record.mtime > held.mtime:
                self._keep(record)
                for peer in self.host.peers:
                    if peer != sender:
                        self.host.send(peer, Message("changed", None))
            self.host.send(sender, Message("ack", (number, record.path)))
        elif message.kind == "fetch":
            number, since = message.body
            self._expire()
            new = []
            for path, (count, _) in reversed(self.changed.items()):
                if count <= since:
                    break
                new.append(self.records[path])
            new.reverse()
            paths = frozenset(record.path for record in new)
            size = HEADER_BYTES + sum(record.bytes for record in new)
            self.host.send(sender, Message("changes", (number, since, self.count, tuple(new)), size, paths))

    def _keep(self, record: Record) -> None:
        self.count += 1
        self.records[record.path] = record
        self.changed.pop(record.path, None)
        self.changed[record.path] = (self.count, self.host.now())
        if record.content is None:
            self._deletes.append((self.host.now(), self.count, record.path))

    def _expire(self) -> None:
        oldest = self.host.now() - 86400.0 * self.how.tombstone_days
        while self._deletes and self._deletes[0][0] < oldest:
            _, count, path = self._deletes.popleft()
            if path in self.changed and self.changed[path][0] == count:
                del self.records[path], self.changed[path]

    def metadata_bytes(self) -> int:
        """Returns the bytes of one record per path, deleted ones too."""
        return sum(RECORD_BYTES + len(path) for path in self.records)


class LwwClient:
    """A folder, a watcher, and a database of what the server is thought to have."""

    def __init__(self, host: Host, how: LwwCloud) -> None:
        self.host, self.how = host, how
        self.files: dict[str, Record] = {}
        self.changed: set[str] = set()
        #: What was deleted here, kept only until the server has it.
        self.deleted: dict[str, Record] = {}
        #: The stamp under which the server is thought to have each path.
        self.database: dict[str, float] = {}
        self.dirty: dict[str, float] = {}
        self.since = 0
        self.listing = False
        self.failed = 0
        self.errors = 0
        self._request = 0
        self._waiting: int | None = None
        self._upload: Record | None = None
        self._stale = False
        self._up = False
        self._left = 0.0

    def local(self, act: Act) -> bool:
        """Changes the folder at once; the watcher will notice."""
        op = act.operation
        if op.op in ("write", "append"):
            seen = self.files.get(op.path)
            self._set(Record(op.path, self.host.clock(), written(act, seen.content if seen else None), (act.number,)))
        elif op.op == "delete":
            self._set(Record(op.path, self.host.clock(), None, (act.number,)))
        elif op.op == "rename":
            old = self.files[op.path]
            self._set(Record(op.path, self.host.clock(), None, (*old.ops, act.number)))
            self._set(Record(op.to, self.host.clock(), old.content, (*old.ops, act.number)))
        return True

    def _set(self, record: Record) -> None:
        self._show(record)
        self.dirty[record.path] = self.host.now()
        self.host.after(self.how.debounce, self._work)

    def _show(self, record: Record) -> None:
        self.changed.add(record.path)
        if record.content is None:
            self.files.pop(record.path, None)
            self.deleted[record.path] = record
        else:
            self.deleted.pop(record.path, None)
            self.files[record.path] = record

    def _work(self) -> None:
        """Sends the next request if none is under way: changes first, then one changed file, whichever the hash puts first."""
        if self._waiting is not None or not self._up:
            return
        if self._stale:
            self._stale = False
            self._ask(None)
            return
        now = self.host.now()
        ripe = [path for path, t in self.dirty.items() if now - t >= self.how.debounce * 0.999]
        if ripe:
            path = ripe[0] if len(ripe) == 1 else min(ripe, key=self._lot)
            self._ask(self.files.get(path) or self.deleted.get(path))

    def _lot(self, path: str) -> bytes:
        return hashlib.blake2b(f"{self.host.name}/{self._request}/{path}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    def _ask(self, upload: Record | None) -> None:
        self._request += 1
        self._waiting, self._upload = self._request, upload
        if upload is None:
            self.host.send(SERVER, Message("fetch", (self._request, self.since)))
        else:
            size = HEADER_BYTES + upload.bytes
            self.host.send(SERVER, Message("upload", (self._request, upload), size, frozenset({upload.path})))
        self.host.after(self.how.timeout, self._late, self._request)

    def _late(self, request: int) -> None:
        """Takes a late answer for a failure. The next try is a new operation with a new stamp."""
        if self._waiting != request:
            return
        self._waiting = None
        self.failed += 1
        self.errors += 1
        if self._upload is None:
            self._stale = True
        else:
            path = self._upload.path
            mine = self.files.get(path) or self.deleted.get(path)
            if path in self.dirty and mine is not None:
                self._show(Record(path, self.host.clock(), mine.content, mine.ops))
        if self.failed >= self.how.failures:
            self._start_over()
        self._work()

    def _start_over(self) -> None:
        """Forgets the database, and with it which deletes the server has not heard of."""
        self.failed = 0
        self.database.clear()
        self.dirty.clear()
        self.deleted.clear()
        self.since = 0
        self.listing = self._stale = True

    def receive(self, sender: str, message: Message) -> None:
        """Answers, and notices that something changed."""
        if message.kind == "changed":
            self._stale = True
        elif message.kind == "ack" and message.body[0] == self._waiting:
            self._waiting, self.failed = None, 0
            record = self._upload
            if record is not None:
                self.database[record.path] = record.mtime
                if (self.files.get(record.path) or self.deleted.get(record.path)) == record:
                    self.dirty.pop(record.path, None)
                    self.deleted.pop(record.path, None)
        elif message.kind == "changes" and message.body[0] == self._waiting:
            self._waiting, self.failed = None, 0
            self._take(message.body[2], message.body[3])
        self._work()

    def _take(self, count: int, records: tuple[Record, ...]) -> None:
        self.since = count
        for record in records:
            self.database[record.path] = record.mtime
            mine = self.files.get(record.path) or self.deleted.get(record.path)
            if mine is None or record.mtime > mine.mtime:
                self.dirty.pop(record.path, None)
                self._show(record)
                self.deleted.pop(record.path, None)
                self.host.shows(record.ops)
        if self.listing:
            self.listing = False
            for path, mine in self.files.items():
                if self.database.get(path) is None or self.database[path] < mine.mtime:
                    self.dirty[path] = self.host.now() - self.how.debounce

    def link(self, peer: str, up: bool) -> None:
        """Asks what changed when the link is back. After longer than the tombstones live, it starts from a listing."""
        self._up = up
        if up:
            if self.host.now() - self._left > 86400.0 * self.how.tombstone_days:
                self._start_over()
            self._stale = True
            self._work()
        else:
            self._left = self.host.now()

    def round(self) -> None:
        """Asks what changed."""
        self._stale = True
        self._work()

    def status(self) -> str:
        """Says that it is in sync, as always."""
        return "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows the one version there is."""
        record = self.files.get(path)
        return (Shown(record.ops, record.content),) if record else ()

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all files."""
        return {path: (record.content,) for path, record in self.files.items() if record.content is not None}

    def contents(self, place: str) -> Iterable[Content]:
        """Returns the one content at a path, if any."""
        record = self.files.get(place)
        return () if record is None or record.content is None else (record.content,)

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether the server is thought to have it; then its content may be evicted."""
        return path not in self.dirty and path in self.database

    def metadata_bytes(self) -> int:
        """Returns the bytes of the database."""
        return sum(RECORD_BYTES + len(path) for path in self.database)
