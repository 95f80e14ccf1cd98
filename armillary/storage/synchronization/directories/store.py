"""The state folder of one replica: its versions, what its directory shows of them, and its link registers, in SQLite (WAL).

Every change is one transaction. `shown` is what lies on disk and which version it came from; `want` is what should lie there instead, until
it does. A scan explains the difference of disk and `shown` by versions; placing brings the disk from `shown` to `want`.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from armillary.errors import InputError, one_line

from ..replicas.link_register import Phase, Register
from ..replicas.versions import ID_BYTES, Item, Version, VersionStore
from . import durable, wire
from .beneath import open_beneath
from .entries import HASH_BYTES, KINDS, MODE, Entry, Kind, Stat, check_entry_path, entry, entry_version, raw, text

FORMAT = 1
#: A transaction carries about this many versions and bytes of contents; more only where one version's content is gone under a later one.
BATCH, BATCH_BYTES = 4096, 1 << 28
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE versions (id TEXT PRIMARY KEY, file TEXT NOT NULL, parents TEXT NOT NULL, path BLOB NOT NULL, kind INTEGER NOT NULL,
                       mode INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL, groups TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE log (seq INTEGER PRIMARY KEY, author TEXT NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, UNIQUE (author, number));
CREATE TABLE heads (id TEXT PRIMARY KEY, file TEXT NOT NULL, path BLOB NOT NULL, live INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX heads_of ON heads (file);
CREATE INDEX heads_at ON heads (path);
CREATE TABLE shown (path BLOB PRIMARY KEY, id TEXT NOT NULL, kind INTEGER NOT NULL, mode INTEGER NOT NULL, data BLOB NOT NULL,
                    size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, ino INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX shown_id ON shown (id);
CREATE INDEX shown_data ON shown (data);
CREATE TABLE want (path BLOB PRIMARY KEY, id TEXT) WITHOUT ROWID;
CREATE TABLE copies (path BLOB PRIMARY KEY, base BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX copies_of ON copies (base);
CREATE TABLE splits (file TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE links (peer TEXT PRIMARY KEY, epoch INTEGER, n INTEGER, phase TEXT, digest TEXT, staged BLOB, outgoing BLOB,
                    finished_n INTEGER, finished_digest TEXT, asked INTEGER, summary BLOB) WITHOUT ROWID;
"""
#: What may lie in the state folder, and whether it is a folder; a link in place of one of them would lead out.
PARTS = {"staging": True, "texts": True, "superseded": True, "lock": False, "clock": False, "state.sqlite": False,
         "state.sqlite-wal": False, "state.sqlite-shm": False, "state.sqlite-journal": False}  # fmt: skip
_ID, _HASH = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}"), re.compile(rf"[0-9a-f]{{{2 * HASH_BYTES}}}")
_VERSION = "v.id, v.file, v.parents, v.path, v.kind, v.mode, v.size, v.data, v.groups"


class Shown(NamedTuple):
    """What lies at a path, which version it came from, and how it looked when that was last known."""

    path: bytes
    id: str
    kind: Kind
    mode: int
    data: str
    stat: Stat

    @property
    def entry(self) -> Entry:
        """Its content."""
        return Entry(self.kind, self.mode, self.stat.size, self.data)


class DirectoryStore(VersionStore):
    """The versions of one replica on disk, with the interface that links use, for one process at a time.

    `root` is the directory; `keep` False leaves no trace, because everything is rolled back on `close`. The state may have come with the
    directory from a stranger: every row is checked when it is read, and whatever is opened lies beneath the root.
    """

    def __init__(self, root: Path, folder: Path, *, durably: bool, keep: bool) -> None:
        self.root, self.folder, self.durably, self.keep = root, folder, durably, keep
        self.staging = folder / "staging"
        self.where = str(folder)
        self.limit = None
        self._depth = 0
        self._lock = self._root = -1
        #: The name that no path of a version may begin with.
        self.state_name = folder.name if folder.parent == root else ""
        self._check_parts()
        there = (folder / "state.sqlite").exists()
        if keep:
            self.staging.mkdir(parents=True, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if keep or there:
                self._hold_alone()
            self._open(str(folder / "state.sqlite") if keep or there else ":memory:")
        except sqlite3.DatabaseError as error:
            self.close()
            raise InputError(f"found {one_line(str(error))}; expected the state of a replica", where=self.where) from None
        except BaseException:
            self.close()
            raise

    def _check_parts(self) -> None:
        """Refuses a state folder in which a link, or anything else, stands in place of one of its parts."""
        for name, is_folder in PARTS.items():
            try:
                mode = os.lstat(self.folder / name).st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode) != is_folder or not (is_folder or stat.S_ISREG(mode)):
                expected = "a folder" if is_folder else "a regular file"
                raise InputError(f"found something else; expected {expected}", where=str(self.folder / name))

    def open_beneath(self, path: bytes, flags: int = os.O_RDONLY) -> int:
        """Opens something below the root; no link is followed on the way."""
        return open_beneath(self._root, path, flags)

    def _hold_alone(self) -> None:
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            raise InputError("found it in use by another process; expected to be alone", where=self.where) from None

    def _open(self, target: str) -> None:
        self._database = sqlite3.connect(target, isolation_level=None, timeout=60)
        self._database.execute("PRAGMA trusted_schema = OFF")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if self.durably else 'OFF'}")
        self._database.execute("PRAGMA cache_size = -65536")
        if not self.keep:
            self._begin()
        new = not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'")
        root = self.root.stat()
        if new:
            facts = {"format": FORMAT, "me": secrets.token_hex(ID_BYTES), "root": root.st_ino, "path": raw(str(self.root.resolve()))}
            with self.transaction():
                for statement in SCHEMA.split(";"):
                    self._database.execute(statement)
                self._database.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        self._check_schema()
        found = dict(self.rows("SELECT key, value FROM meta"))
        if found.get("format") != FORMAT:
            raise InputError(f"found state of version {found.get('format')}; expected version {FORMAT}", where=self.where)
        if found.get("root") != root.st_ino:
            other = one_line(text(bytes(found["path"])), 120) if isinstance(found.get("path"), bytes) else "unknown"
            said = f'found the state of another directory ("{other}"); expected that of "{one_line(str(self.root), 120)}"'
            raise InputError(f"{said}. If this is a copy, remove the state folder; nothing is deleted because of that", where=self.where)
        self.me = str(found.get("me"))
        #: The names of complete contents in staging.
        self.ready = {one.name for one in os.scandir(self.staging) if _HASH.fullmatch(one.name) and one.is_file(follow_symlinks=False)} \
            if self.keep else set()  # fmt: skip
        self.counts = dict(self.rows("SELECT author, MAX(number) FROM log GROUP BY author"))
        if not all(isinstance(author, str) and _ID.fullmatch(author) and _is_count(n) and n > 0 for author, n in
                   [(self.me, 1), *self.counts.items()]):  # fmt: skip
            raise self._wrong("authors that are no ids")

    def _check_schema(self) -> None:
        """Refuses triggers, views and other tables than ours, because they could do things that no row says."""
        kept = self.rows("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        ours = {" ".join(statement.split()) for statement in SCHEMA.split(";") if statement.strip()}
        other = [name for _, name, sql in kept if " ".join(str(sql).split()) not in ours]
        if other or len(kept) != len(ours):
            raise self._wrong(f'a table or trigger "{one_line(str(other[0] if other else "missing"), 60)}"')

    def _wrong(self, found: str) -> InputError:
        return InputError(f"found {found}; expected the state of a replica", where=self.where)

    def close(self) -> None:
        """Gives the folder back; nothing is lost without it."""
        database = getattr(self, "_database", None)
        if database is not None:
            if database.in_transaction:
                database.execute("ROLLBACK")
            database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def rows(self, query: str, values: Iterable[Any] = ()) -> list[Any]:
        """Returns all rows of a query."""
        return self._database.execute(query, tuple(values)).fetchall()

    def run(self, query: str, values: Iterable[tuple[Any, ...]]) -> None:
        """Runs a statement for each of some rows of values."""
        self._database.executemany(query, values)

    def _begin(self) -> None:
        self._depth = 1
        self._database.execute("BEGIN IMMEDIATE")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all changes or none, and has them on the device when it ends; within another transaction it is a part of that."""
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        self._begin()
        counts = dict(getattr(self, "counts", {}))
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self.counts = counts
            raise
        finally:
            self._depth = 0
        durable.wrote()

    # Versions.

    def create(self, made: Version) -> None:
        """Adds a version of our own."""
        self.insert([((self.me, self.counts.get(self.me, 0) + 1), made)])

    def insert(self, items: Iterable[Item]) -> list[Version]:
        """Adds versions that are closed under parents; those that were not there are returned. A repeat changes nothing."""
        new = []
        with self.transaction():
            run = self._database.execute
            for (author, number), one in items:
                if number != self.counts.get(author, 0) + 1:
                    continue
                self.counts[author] = number
                run("INSERT INTO log (author, number, id) VALUES (?, ?, ?)", (author, number, one.id))
                holds = entry(one)
                row = (0, 0, 0, b"") if holds is None else (1 + KINDS.index(holds.kind), holds.mode, holds.size, raw(holds.data))
                path = raw(one.path)
                added = run("INSERT OR IGNORE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            (one.id, one.file, " ".join(one.parents), path, *row, one.group)).rowcount  # fmt: skip
                if added:
                    for parent in one.parents:
                        run("DELETE FROM heads WHERE id = ?", (parent,))
                    run("INSERT INTO heads VALUES (?, ?, ?, ?)", (one.id, one.file, path, int(holds is not None)))
                    new.append(one)
        return new

    def summary(self) -> dict[str, int]:
        """Returns how many versions of each author are here."""
        return dict(self.counts)

    def beyond(self, theirs: Mapping[str, int]) -> tuple[Item, ...]:
        """Returns about a batch of what a store with that summary lacks, parents first.

        Every file's version in it is a head here, or lies below another in it, because the contents of the others are gone.
        """
        lacks = [(author, theirs.get(author, 0)) for author, count in self.counts.items() if theirs.get(author, 0) < count]
        if not lacks:
            return ()
        begins = [self.rows("SELECT seq FROM log WHERE author = ? AND number = ?", (a, n + 1)) for a, n in lacks]
        if not all(begins):
            raise self._wrong("a log that lacks versions")
        first = min(begin[0][0] for begin in begins)
        found = self._database.execute(f"SELECT l.author, l.number, h.id, {_VERSION} FROM log l JOIN versions v ON v.id = l.id "
                                       "LEFT JOIN heads h ON h.id = l.id WHERE l.seq >= ? ORDER BY l.seq", (first,))  # fmt: skip
        out: list[Item] = []
        seen: set[str] = set()
        gone: set[str] = set()
        size = 0
        for author, number, head, *row in found:
            if not _is_count(number) or not _is_id(author):
                raise self._wrong("a version without a number")
            if number <= theirs.get(author, 0):
                continue
            one = self._version(row)
            out.append(((author, number), one))
            gone.difference_update(one.parents)
            holds = entry(one)
            if head is None and one.id not in seen and holds is not None and holds.kind == "file":
                gone.add(one.id)
            elif holds is not None:
                size += holds.size
            seen.add(one.id)
            if (len(out) >= BATCH or size >= BATCH_BYTES) and not gone:
                break
        found.close()
        return tuple(out)

    def is_closed(self, items: Iterable[Item]) -> bool:
        """Returns whether these can be inserted: no parent and no earlier version of an author is missing, and every id is right."""
        here: set[str] = set()
        counts = dict(self.counts)
        for (author, number), one in items:
            if number > counts.get(author, 0) + 1 or not all(p in here or self.has(p) for p in one.parents):
                return False
            if one.id != entry_version(one.parents, one.file, one.path, entry(one), one.group).id:
                return False
            counts[author] = max(number, counts.get(author, 0))
            here.add(one.id)
        return True

    def has(self, id: str) -> bool:
        """Returns whether a version is here."""
        return bool(self.rows("SELECT 1 FROM versions WHERE id = ?", (id,)))

    def get(self, id: str) -> Version:
        """Returns a version that is here."""
        found = self.rows(f"SELECT {_VERSION} FROM versions v WHERE v.id = ?", (id,))
        if not found:
            raise self._wrong("an id without its version")
        return self._version(found[0])

    def is_head(self, id: str) -> bool:
        """Returns whether nothing here was made from it."""
        return bool(self.rows("SELECT 1 FROM heads WHERE id = ?", (id,)))

    def heads_of(self, file: str) -> list[Version]:
        """Returns the heads of a file, deletes too, by id."""
        query = f"SELECT {_VERSION} FROM heads h JOIN versions v ON v.id = h.id WHERE h.file = ? ORDER BY h.id"
        return [self._version(row) for row in self.rows(query, (file,))]

    def heads_at(self, path: str) -> list[Version]:
        """Returns the living heads whose path this is, by id."""
        query = f"SELECT {_VERSION} FROM heads h JOIN versions v ON v.id = h.id WHERE h.path = ? AND h.live ORDER BY h.id"
        return [self._version(row) for row in self.rows(query, (raw(path),))]

    def has_below(self, path: str) -> bool:
        """Returns whether a living head lies below this path, so that it must be a directory."""
        low, high = raw(path) + b"/", raw(path) + b"0"
        return bool(self.rows("SELECT 1 FROM heads WHERE path > ? AND path < ? AND live LIMIT 1", (low, high)))

    def forget_deletes(self) -> None:
        """Takes deletes out of the heads that are their files' only heads and that every known replica has; the versions stay."""
        summaries = self.summaries()
        if not summaries:
            return
        with self.transaction():
            query = """SELECT h.id, l.author, l.number FROM heads h JOIN log l ON l.id = h.id WHERE NOT h.live
                       AND NOT EXISTS (SELECT 1 FROM heads o WHERE o.file = h.file AND o.id <> h.id)"""
            for id, author, number in self.rows(query):
                if not _is_count(number):
                    raise self._wrong("a version without a number")
                if all(theirs.get(author, 0) >= number for theirs in summaries):
                    self.run("DELETE FROM heads WHERE id = ?", [(id,)])

    # What lies on disk.

    def shown_at(self, path: str | bytes) -> Shown | None:
        """Returns what is known to lie at a path."""
        found = self.rows("SELECT * FROM shown WHERE path = ?", (raw(path) if isinstance(path, str) else path,))
        return self.shown_row(found[0]) if found else None

    def shown_with(self, data: str) -> list[Shown]:
        """Returns the files that hold this content."""
        return [self.shown_row(row) for row in self.rows("SELECT * FROM shown WHERE data = ? AND kind = 1 LIMIT 4", (raw(data),))]

    def is_shown(self, id: str) -> bool:
        """Returns whether a version lies on disk under some name."""
        return bool(self.rows("SELECT 1 FROM shown WHERE id = ?", (id,)))

    def keep_shown(self, rows: Iterable[Shown]) -> None:
        """Records what lies on disk."""
        self.run("INSERT OR REPLACE INTO shown VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 ((r.path, r.id, 1 + KINDS.index(r.kind), r.mode, raw(r.data), *r.stat) for r in rows))  # fmt: skip

    def drop_shown(self, paths: Iterable[bytes]) -> None:
        """Records that nothing of ours lies there."""
        self.run("DELETE FROM shown WHERE path = ?", ((path,) for path in paths))

    def shown_wanted(self) -> dict[bytes, Shown]:
        """Returns what is known to lie at the paths where something is still to be placed."""
        return {row[0]: self.shown_row(row) for row in self.rows("SELECT s.* FROM want w JOIN shown s ON s.path = w.path")}

    def wanted(self) -> list[tuple[bytes, Version | None]]:
        """Returns what is still to be placed: path and version, or None for nothing."""
        return [(self.checked_path(row[0]), None if row[1] is None else self._version(row[1:])) for row in self.rows(
            f"SELECT w.path, {_VERSION} FROM want w LEFT JOIN versions v ON v.id = w.id ORDER BY w.path")]  # fmt: skip

    def conflicts(self) -> tuple[str, ...]:
        """Returns the paths with more than one living head, which are their copies and all names of a file that was given two."""
        found = {copy for copy, _ in self.copies()}
        found |= self.paths("SELECT h.path FROM splits s JOIN heads h ON h.file = s.file WHERE h.live")
        return tuple(sorted(found))

    def copies(self) -> list[tuple[str, str]]:
        """Returns the paths of copies that conflicts made, each with the path that it is a copy of."""
        return [(text(self.checked_path(copy)), text(self.checked_path(base))) for copy, base in self.rows("SELECT path, base FROM copies")]

    def paths(self, query: str) -> set[str]:
        """Returns the paths that a query finds."""
        return {text(self.checked_path(path)) for (path,) in self.rows(query)}

    # Links.

    def register(self, peer: str) -> Register:
        """Returns the register of the link to a peer, a new one for a stranger."""
        found = self.rows("SELECT epoch, n, phase, digest, staged, outgoing, finished_n, finished_digest, asked FROM links WHERE peer = ?",
                          (peer,))  # fmt: skip
        if not found:
            return Register()
        epoch, n, phase, digest, staged, outgoing, finished_n, finished_digest, asked = found[0]
        numbers, blobs, digests = (epoch, n, finished_n, asked), (staged, outgoing), (digest, finished_digest)
        sound = all(map(_is_count, numbers)) and all(isinstance(b, bytes) for b in blobs) and phase in {p.value for p in Phase}
        if not sound or not all(isinstance(d, str) and re.fullmatch(r"(?:[0-9a-f]{2}){0,16}", d) for d in digests):
            raise self._wrong(f"a register of the link to {one_line(str(peer), 40)} that cannot be")
        items = [wire.read_items(wire.Reader(kept, self.where), self.state_name) for kept in blobs]
        return Register(epoch, n, Phase(phase), digest, items[0], items[1], (finished_n, finished_digest), asked)

    def keep_register(self, peer: str, r: Register, changed: Iterable[str]) -> None:
        """Writes a register; of what may be long only what changed."""
        changed = set(changed)
        with self.transaction():
            self.run("INSERT OR IGNORE INTO links VALUES (?, 1, 1, 'idle', '', x'00', x'00', 0, '', 0, x'00')", [(peer,)])
            self.run("UPDATE links SET epoch = ?, n = ?, phase = ?, digest = ?, finished_n = ?, finished_digest = ?, asked = ? "
                     "WHERE peer = ?", [(r.epoch, r.n, r.phase.value, r.digest, *r.finished, r.asked, peer)])  # fmt: skip
            for column, items in (("staged", r.staged), ("outgoing", r.outgoing)):
                if column in changed:
                    self.run(f"UPDATE links SET {column} = ? WHERE peer = ?", [(wire.items_bytes(items), peer)])

    def keep_summary(self, peer: str, summary: Mapping[str, int]) -> None:
        """Records what a peer is known to have."""
        with self.transaction():
            self.run("UPDATE links SET summary = ? WHERE peer = ?", [(wire.write_summary(wire.Writer(), summary).done(), peer)])

    def summaries(self) -> list[dict[str, int]]:
        """Returns what each known replica has."""
        return [self._read_summary(kept) for (kept,) in self.rows("SELECT summary FROM links")]

    def summary_of(self, peer: str) -> dict[str, int] | None:
        """Returns what a peer is known to have, or None for a stranger."""
        found = self.rows("SELECT summary FROM links WHERE peer = ?", (peer,))
        return self._read_summary(found[0][0]) if found else None

    def _read_summary(self, kept: Any) -> dict[str, int]:
        if not isinstance(kept, bytes):
            raise self._wrong("a summary that is no bytes")
        return wire.read_summary(wire.Reader(kept, self.where))

    def staged(self) -> set[str]:
        """Returns the contents that open transactions or pending placements need."""
        needed = {holds.data for _, one in self.wanted() if one is not None and (holds := entry(one)) is not None and holds.kind == "file"}
        for (peer,) in self.rows("SELECT peer FROM links"):
            needed |= {holds.data for _, one in self.register(peer).staged if (holds := entry(one)) is not None and holds.kind == "file"}
        return needed

    # Rows, which are checked whenever they are read.

    def shown_row(self, row: tuple[Any, ...]) -> Shown:
        """Returns a row of `shown`."""
        path, id, kind, mode, data, *rest = row
        holds = self._entry(kind, mode, rest[0], data)
        if holds is None or not _is_id(id) or len(rest) != 4 or not all(isinstance(number, int) for number in rest):
            raise self._wrong(f'a row for "{one_line(text(self.checked_path(path)), 60)}" that cannot be')
        return Shown(self.checked_path(path), id, holds.kind, holds.mode, holds.data, Stat(*rest))

    def _version(self, row: Iterable[Any]) -> Version:
        id, file, parents, path, kind, mode, size, data, group = row
        texts = all(isinstance(field, str) for field in (id, file, parents, group))
        if not texts or not all(_is_id(one) for one in (id, *parents.split())):
            raise self._wrong("a version whose ids are none")
        holds = self._entry(kind, mode, size, data)
        return Version(id, file, tuple(parents.split()), text(self.checked_path(path)), holds, group, ())  # type: ignore[arg-type]

    def _entry(self, kind: Any, mode: Any, size: Any, data: Any) -> Entry | None:
        if kind == 0:
            return None
        numbers = all(isinstance(number, int) and number >= 0 for number in (kind, mode, size))
        if not numbers or not isinstance(data, bytes) or kind > len(KINDS) or mode > MODE:
            raise self._wrong("an entry that cannot be")
        what, held = KINDS[kind - 1], text(data)
        if (what == "file" and not _HASH.fullmatch(held)) or (what == "dir" and held) or (what == "link" and (not held or "\0" in held)):
            raise self._wrong(f'a {what} that holds "{one_line(held, 60)}"')
        return Entry(what, mode, size, held)

    def checked_path(self, path: Any) -> bytes:
        """Returns a path of a row; one that is no bytes or leads out of the root is refused."""
        if not isinstance(path, bytes):
            raise self._wrong("a path that is no bytes")
        check_entry_path(text(path), self.state_name, self.where)
        return path


def _is_count(number: Any) -> bool:
    """Says whether it is a whole number that can be counted on without ever becoming more than SQLite holds."""
    return isinstance(number, int) and 0 <= number <= wire.MOST_NUMBER


def _is_id(id: Any) -> bool:
    return isinstance(id, str) and _ID.fullmatch(id) is not None
