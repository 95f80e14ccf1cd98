"""One conversation of two replicas: they take turns, so that neither waits for the other to read while it writes.

A turn is any number of messages and the word TURN. The link registers decide; this only sees to it that the contents of what is offered are
in staging, on the device, before a register says HELD or COMMITTING. A content that changed on disk before it was read ends the transaction
(STALE): its owner looks again, and both start anew from their registers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

from armillary.errors import InputError

from ..replicas.link_register import LinkEnd, Phase
from ..replicas.versions import Item, Version
from ..world.protocol import Message
from . import wire
from .beneath import create_new
from .entries import content_hash
from .replica import Replica
from .store import DirectoryStore
from .wire import BLOB, BYE, GONE, HELLO, LINK, STALE, TURN, WANT, Reader, Writer

MAGIC = "armillary-sync"


class DurableEnd(LinkEnd):
    """An end of a link whose register is in the state folder before anything is sent."""

    def __init__(self, store: DirectoryStore, peer: str, show: Callable[[tuple[Item, ...]], list[Version]]) -> None:
        super().__init__(store, store.me < peer, show)
        self.peer = peer
        self.kept = store
        self.register = store.register(peer)

    def _save(self, **changes: object) -> None:
        super()._save(**changes)
        self.kept.keep_register(self.peer, self.register, changes)


class Session:
    """A replica's part of a conversation: `take` takes what the other said, `turn` gives what to say; `finished` when both know enough."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.store = replica.store
        self.peer = ""
        self.finished = False
        self.my_turn = False
        self.sent_bytes = 0
        self.transactions = 0
        self.link: DurableEnd
        self._started = False
        self._waiting: deque[Message] = deque()
        self._requested: list[str] = []
        #: The message whose contents were asked for, and those that have not come.
        self._asking: Message | None = None
        self._asked: set[str] = set()
        self._gone: set[str] = set()
        #: Contents that nobody had even after another look; their versions are taken without them.
        self._hopeless: set[str] = set()
        self._stale: set[str] = set()
        self._heard = True
        self._heard_now = False
        self._peer_content = False
        self._incoming: _Incoming | None = None
        self._arrived = False

    def hello(self) -> bytes:
        """Returns the first message."""
        own = self.store.counts.get(self.store.me, 0)
        return Writer(HELLO).text(MAGIC).number(wire.FORMAT).blob(bytes.fromhex(self.store.me)).number(own).done()

    def take(self, body: bytes) -> None:
        """Takes one message."""
        if not body:
            raise InputError("found an empty frame; expected a message", where=wire.WHERE)
        source = Reader(body[1:])
        tag = body[0]
        if (tag == HELLO) == bool(self.peer):
            raise source.wrong(f"message {tag}", "one HELLO first")
        self._heard_now = self._heard_now or tag not in (TURN, BYE)
        if tag == HELLO:
            self._greeted(source)
        elif tag == LINK:
            self._waiting.append(wire.read_link(source, self.replica.state_name))
        elif tag == WANT:
            self._requested += [source.name(64) for _ in range(source.count(33))]
        elif tag == BLOB:
            self._piece(source)
        elif tag == GONE:
            self._gone.add(source.name(64))
        elif tag == STALE:
            self._stale |= {source.name(64) for _ in range(source.count(33))}
        elif tag == TURN:
            self._peer_content = bool(source.number(1))
            self.my_turn, self._heard, self._heard_now = True, self._heard_now, False
        elif tag == BYE:
            self.finished = True
        else:
            raise source.wrong(f"message {tag}", "a known one")

    def _greeted(self, source: Reader) -> None:
        magic, version = source.text(64), source.number()
        if magic != MAGIC or version != wire.FORMAT:
            raise source.wrong(f'"{magic}" {version}', f'"{MAGIC}" {wire.FORMAT}')
        self.peer, own = source.name(), source.number()
        source.end()
        if self.peer == self.store.me:
            said = "found the same replica at both ends, or a copy of its state; expected two: remove the state folder of the copy"
            raise InputError(said, where=self.store.where)
        if own < self.store.counts.get(self.peer, 0):
            said = f"found that replica {self.peer[:8]} forgot versions of its own; expected all. Its state is an old copy: remove it"
            raise InputError(said, where=self.store.where)
        self.link = DurableEnd(self.store, self.peer, self._show)
        self.my_turn = self.store.me < self.peer
        self._n = self.link.register.n

    def _show(self, items: tuple[Item, ...]) -> list[Version]:
        self.transactions += 1
        return self.replica.show(items) if items else []

    def turn(self) -> Iterator[bytes]:
        """Yields what to say now."""
        said = False
        self.my_turn = False
        for body in self._speak():
            said = True
            self.sent_bytes += len(body)
            yield body
        content = self._is_content()
        if not said and ((content and self._peer_content) or not self._heard):
            self.finished = True
            yield Writer(BYE).done()
        else:
            yield Writer(TURN).number(int(content)).done()

    def _is_content(self) -> bool:
        return not (self.link.is_open or self._waiting or self._asked) and self.link.theirs == self.store.counts

    def _speak(self) -> Iterator[bytes]:
        if not self._started:
            self._started = True
            yield from self._say(self.link.reconnect())
            if self.replica.lacking:
                yield _names(WANT, self.replica.lacking)
        if self._stale:
            hot, self._stale = self.replica.paths_of(self._stale), set()
            self._waiting.clear()
            self._asked, self._asking = set(), None
            self.replica.scan(hot)
            yield from self._say(self.link.reconnect())
        for data in self._requested:
            yield from self._content(data)
        self._requested = []
        if self._arrived and self.replica.lacking:
            self.replica.scan()
        self._arrived = False
        while self._waiting:
            message = self._waiting[0]
            if message.kind in ("offer", "hold"):
                yield from self._collect(message)
                if self._asked or not self._waiting:
                    return
            self.replica.flush_staging()
            self._waiting.popleft()
            yield from self._say(self.link.receive(message))
        if not self.link.is_open:
            yield from self._say(self.link.offer())

    def _say(self, messages: list[Message]) -> Iterator[bytes]:
        for message in messages:
            yield wire.link_body(message)

    def _collect(self, message: Message) -> Iterator[bytes]:
        """Asks for contents that are not here; where one cannot be had, drops everything and starts anew."""
        items = message.body.items
        if message is self._asking:
            missing = lost = self._asked
        else:
            if not self.store.is_closed(items):
                raise InputError("found versions without their parents or with a wrong id; expected whole ones", where=wire.WHERE)
            missing, lost = self.replica.missing(items) - self._hopeless, set()
        if lost:
            # It was asked for and is not here, because it changed under its owner.
            self._hopeless |= lost & self._gone
            self._gone, self._asked, self._asking = set(), set(), None
            self._waiting.clear()
            yield _names(STALE, lost)
            yield from self._say(self.link.reconnect())
            return
        self._asked, self._asking = set(missing), message if missing else None
        if missing:
            yield _names(WANT, missing)

    def _content(self, data: str) -> Iterator[bytes]:
        pieces = self.replica.content(data)
        if pieces is None:
            yield Writer(GONE).blob(bytes.fromhex(data)).done()
            return
        name = bytes.fromhex(data)
        last = b""
        for k, piece in enumerate(pieces):
            if k:
                yield Writer(BLOB).blob(name).number(0).blob(last).done()
            last = piece
        yield Writer(BLOB).blob(name).number(1).blob(last).done()

    def _piece(self, source: Reader) -> None:
        data, last, piece = source.name(64), source.number(1), source.blob()
        source.end()
        if self._incoming is None:
            self._incoming = _Incoming(f"{self.store.staging}/incoming", data)
        if self._incoming.data != data:
            raise source.wrong("a piece of another content", "one content after the other")
        self._incoming.add(piece)
        if last:
            done, self._incoming = self._incoming, None
            if done.is_whole():
                self.replica.arrived(done.path, data)
                self._asked.discard(data)
                self._arrived = True

    def end(self) -> None:
        """Writes down what the other has, and tidies."""
        if self._incoming is not None:
            os.close(self._incoming.fd)
        if self.peer:
            if self.finished and (known := self.store.summary_of(self.peer)) is not None and known != self.link.theirs:
                self.store.keep_summary(self.peer, self.link.theirs)
            self.replica.finish()

    @property
    def status(self) -> str:
        """ "in sync", "conflict", "waiting" or "in doubt"; the first only if nothing is open and both have the same versions."""
        replica = self.replica
        if self.link.register.phase is Phase.COMMITTING:
            return "in doubt"
        if self.link.is_open or self.link.theirs != self.store.counts or replica.failed or replica.lacking or replica.scanned.skipped:
            return "waiting"
        return "conflict" if replica.conflicts() else "in sync"


class _Incoming:
    """A content that is being received."""

    def __init__(self, path: str, data: str) -> None:
        self.path, self.data = path, data
        self.fd = create_new(path)
        self._hash = content_hash()

    def add(self, piece: bytes) -> None:
        """Takes the next bytes."""
        self._hash.update(piece)
        while piece:
            piece = piece[os.write(self.fd, piece) :]

    def is_whole(self) -> bool:
        """Returns whether the content is what it was to be."""
        os.close(self.fd)
        return self._hash.hexdigest() == self.data


def _names(tag: int, contents: set[str]) -> bytes:
    into = Writer(tag).number(len(contents))
    for data in sorted(contents):
        into.blob(bytes.fromhex(data))
    return into.done()
