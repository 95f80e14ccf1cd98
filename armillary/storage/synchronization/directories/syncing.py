"""Two directories become the same: `sync` in one call, `connect` for replicas that are open, `converse` over any stream of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from armillary.errors import InputError, one_line, unknown

from ..replicas.versions import Item
from .entries import entry, text
from .replica import Replica
from .session import Session
from .store import DirectoryStore
from .wire import Transport

PROTOCOLS = ("transactional-link",)
#: A change made in a directory: ("create", "update", "delete" or "directory", path).
Change = tuple[str, str]


@dataclass(frozen=True)
class SyncReport:
    """What a synchronisation did, and how things stand.

    `status` is "in sync" only if nothing is open, both ends have the same versions and no file has two heads; else "conflict", "waiting" or
    "in doubt". `kept` are files that one side deleted and the other changed, `waiting` has a line for each thing that could not be read
    or placed, `ignored` for each that is never synchronised. `transactions` counts sets of versions that became visible, `sent_bytes`
    what was said.
    """

    left: str
    right: str
    status: str
    to_left: tuple[Change, ...] = ()
    to_right: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    transactions: int = 0
    sent_bytes: int = 0
    dry_run: bool = False

    def __str__(self) -> str:
        changes = f"{len(self.to_right)} to the right, {len(self.to_left)} to the left"
        lines = [f"{self.status}: {changes}{', if it were done' if self.dry_run else ''}"]
        lines += [f"conflict: {one_line(path)}" for path in self.conflicts]
        lines += [f"kept, though deleted on one side: {one_line(path)}" for path in self.kept]
        return "\n".join([*lines, *self.waiting, *self.ignored])


def sync(
    left: str | os.PathLike[str],
    right: str | os.PathLike[str],
    protocol: str = "transactional-link",
    state: str | os.PathLike[str] = ".armillary-sync",
    dry_run: bool = False,
    *,
    automerge: bool = False,
    durable: bool = True,
) -> SyncReport:
    """Makes two directories hold the same; may be killed at any instant and called again.

    `state` is the name of a state folder in each, or a path outside both, which then holds two. `dry_run` tells what would be done and
    writes nothing. `automerge` merges texts line by line where the changes do not touch. `durable=False` gives up safety against loss of
    power, not against a kill.
    """
    if protocol not in PROTOCOLS:
        raise unknown("protocol for directories", protocol, PROTOCOLS)
    ends = [Path(os.path.realpath(end)) for end in (left, right)]
    if ends[0] == ends[1] or ends[0] in ends[1].parents or ends[1] in ends[0].parents:
        found = f'found "{one_line(str(left))}" and "{one_line(str(right))}"'
        raise InputError(f"{found}; expected two directories, neither in the other", where="sync")
    states = [Path(state) / side for side in ("left", "right")] if "/" in os.fspath(state) else [Path(state)] * 2
    with Replica(left, states[0], automerge=automerge, durable=durable, keep=not dry_run) as a:  # noqa: SIM117
        with Replica(right, states[1], automerge=automerge, durable=durable, keep=not dry_run) as b:
            return preview(a, b) if dry_run else connect(a, b)


def connect(a: Replica, b: Replica) -> SyncReport:
    """Synchronises two open replicas of this process."""
    for replica in (a, b):
        _start(replica)
    left, right = Session(a), Session(b)
    try:
        left.take(right.hello())
        right.take(left.hello())
        while not (left.finished and right.finished):
            speaker, listener = (left, right) if left.my_turn else (right, left)
            for body in speaker.turn():
                listener.take(body)
    finally:
        left.end()
        right.end()
    return _report(a, b, left, right)


def converse(replica: Replica, transport: Transport) -> SyncReport:
    """Synchronises an open replica with one at the other end of a stream, which does the same; the report is this end's."""
    _start(replica)
    session = Session(replica)
    try:
        transport.send(session.hello())
        transport.push()
        session.take(transport.receive())
        while not session.finished:
            if session.my_turn:
                for body in session.turn():
                    transport.send(body)
                transport.push()
            else:
                session.take(transport.receive())
    finally:
        session.end()
    waiting = (*replica.scanned.skipped, *replica.failed)
    return SyncReport(str(replica.path), session.peer, session.status, tuple(replica.placed), (), replica.conflicts(), tuple(replica.kept),
                      waiting, replica.scanned.ignored, session.transactions, session.sent_bytes)  # fmt: skip


def preview(a: Replica, b: Replica) -> SyncReport:
    """Returns what `connect` would do to two replicas opened with `keep=False`."""
    for replica in (a, b):
        replica.scan()
    for source, target in ((a, b), (b, a)):
        while items := _lacks(source.store, target.store):
            target.take(items)
    done = [tuple(_change(replica.store, path, one is None) for path, one in replica.store.wanted()) for replica in (a, b)]
    status = "conflict" if a.conflicts() or b.conflicts() else "in sync"
    return SyncReport(str(a.path), str(b.path), status, done[0], done[1], a.conflicts(), tuple(dict.fromkeys([*a.kept, *b.kept])),
                      (*a.scanned.skipped, *b.scanned.skipped), (*a.scanned.ignored, *b.scanned.ignored), dry_run=True)  # fmt: skip


def _lacks(source: DirectoryStore, target: DirectoryStore) -> tuple[Item, ...]:
    return source.beyond(target.summary())


def _change(store: DirectoryStore, path: bytes, gone: bool) -> Change:
    if gone:
        return "delete", text(path)
    found = store.rows("SELECT id FROM want WHERE path = ?", (path,))[0][0]
    holds = entry(store.get(found))
    if holds is not None and holds.kind == "dir":
        return "directory", text(path)
    return "create" if store.shown_at(path) is None else "update", text(path)


def _start(replica: Replica) -> None:
    replica.placed, replica.kept, replica.failed = [], [], []
    replica.scan()


def _report(a: Replica, b: Replica, left: Session, right: Session) -> SyncReport:
    order: Callable[[str], int] = ["in sync", "conflict", "waiting", "in doubt"].index
    status = max(left.status, right.status, key=order)
    return SyncReport(str(a.path), str(b.path), status, tuple(a.placed), tuple(b.placed), tuple(sorted({*a.conflicts(), *b.conflicts()})),
                      tuple(dict.fromkeys([*a.kept, *b.kept])), (*a.scanned.skipped, *a.failed, *b.scanned.skipped, *b.failed),
                      (*a.scanned.ignored, *b.scanned.ignored), max(left.transactions, right.transactions),
                      left.sent_bytes + right.sent_bytes)  # fmt: skip
