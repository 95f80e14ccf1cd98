"""The index of a store in SQLite (WAL): names, recipes of logical chunk numbers, and the place of each chunk.

When a chunk moves, no recipe changes, only the chunk's row does. Every change of the store is one transaction, so a reader in this process
or another sees the store before it or after it. `redo` holds the content of slots that are being overwritten in place, from
the transaction that says so until the slot is known to be on the device.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line

from .chunking import FINGERPRINT_BYTES, Chunker
from .containers import HEAD, SLOT, Place

VERSION = 1
#: Chunk numbers in one row of a recipe, so that an update rewrites one row instead of the whole recipe.
PART = 512
#: Numbers of chunks and containers stay below these, so that no product of them overflows and every file has 12 digits.
MOST_CHUNKS, MOST_CONTAINERS = 1 << 62, 10**11
#: Names, recipes and slots are at most this long, so a crafted index cannot make SQLite allocate more.
_LONGEST_VALUE = 1 << 30
#: What SQLite raises for a damaged index; the second when the damage is in the text that its message quotes.
_FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE chunks (id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, container INTEGER NOT NULL, slot INTEGER NOT NULL,
                     offset INTEGER NOT NULL, room INTEGER NOT NULL, length INTEGER NOT NULL, crc INTEGER NOT NULL, refs INTEGER NOT NULL);
CREATE UNIQUE INDEX places ON chunks (container, slot);
CREATE TABLE files (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL);
CREATE TABLE recipes (file INTEGER NOT NULL, part INTEGER NOT NULL, start INTEGER NOT NULL, ids BLOB NOT NULL,
                      PRIMARY KEY (file, part)) WITHOUT ROWID;
CREATE TABLE redo (container INTEGER NOT NULL, slot INTEGER NOT NULL, offset INTEGER NOT NULL, data BLOB NOT NULL,
                   PRIMARY KEY (container, slot)) WITHOUT ROWID;
"""

_TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"


def _expected_tables() -> list[tuple]:
    """The tables and indexes of a store as SQLite lists them; a trigger or a view is none of them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        return database.execute(_TABLES).fetchall()


@dataclass(frozen=True)
class Chunk:
    """A row of the index: a chunk's number, name, place, bytes, checksum and number of references."""

    id: int
    fingerprint: bytes
    place: Place
    length: int
    crc: int
    refs: int


class Index:
    """One connection. `transaction` groups changes, and outside it every statement is a transaction of its own."""

    def __init__(self, path: Path, chunker: Chunker, slots: int, *, sync: bool, readonly: bool) -> None:
        self.where, self._chunker, self._slots = str(path), chunker, slots
        try:
            target = f"{path.resolve().as_uri()}?mode=ro" if readonly else str(path)
            self._database = sqlite3.connect(target, uri=readonly, isolation_level=None, check_same_thread=False, timeout=60)
            self._database.execute("PRAGMA busy_timeout = 60000")
            if not readonly:
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
            self._database.execute("PRAGMA trusted_schema = OFF")
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            self._prepare(chunker, slots, readonly)
        except _FAULTS as error:
            raise self._bad(str(error)) from None

    def _bad(self, found: str) -> InputError:
        return InputError(f"found {one_line(found, 120)}; expected the index of a store", where=self.where)

    def _prepare(self, chunker: Chunker, slots: int, readonly: bool) -> None:
        wanted = {"version": VERSION, "chunker": chunker.name, "chunk": chunker.chunk, "slots": slots}
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'") and not readonly:
            with self.transaction():
                for statement in SCHEMA.split(";"):
                    self._database.execute(statement)
                for key, value in wanted.items():
                    self.keep(key, value)
        if self._rows(_TABLES) != _expected_tables():
            raise self._bad("other tables than those of a store")
        found = {key: self.get(key) for key in wanted}
        if found != wanted:
            raise InputError(f"found a store of {found['chunker']} {found['chunk']}, version {found['version']}; "
                             f"expected {chunker.name} {chunker.chunk}, version {VERSION}", where=self.where)  # fmt: skip

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        try:
            return self._database.execute(query, values).fetchall()
        except _FAULTS as error:
            if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):  # A full disk, or a lock held elsewhere.
                raise
            raise self._bad(str(error)) from None

    def _change(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        try:
            self._database.executemany(query, rows)
        except sqlite3.OperationalError:  # A full disk, or a lock that another process holds.
            raise
        except _FAULTS as error:
            raise self._bad(str(error)) from None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """A transaction, of which all or nothing happens; without `write`, one state of the index for several queries."""
        self._rows("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._rows("COMMIT")

    def get(self, key: str) -> object:
        """A setting of the store, or None."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def keep(self, key: str, value: object) -> None:
        """Keeps a setting of the store."""
        self._rows("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def by_fingerprint(self, fingerprint: bytes) -> Chunk | None:
        """The chunk of that name, if there is one."""
        return next(self._chunks("fingerprint = ?", (fingerprint,)), None)

    def ids_of(self, fingerprints: Sequence[bytes]) -> dict[bytes, int]:
        """The numbers of those chunks that there are."""
        found: dict[bytes, int] = {}
        for at in range(0, len(fingerprints), 500):
            some = fingerprints[at : at + 500]
            found.update(self._rows(f"SELECT fingerprint, id FROM chunks WHERE fingerprint IN ({','.join('?' * len(some))})", some))
        return found

    def by_id(self, ids: Iterable[int]) -> dict[int, Chunk]:
        """Chunks by their numbers."""
        wanted = json.dumps([int(i) for i in set(ids)])
        return {chunk.id: chunk for chunk in self._chunks("id IN (SELECT value FROM json_each(?))", (wanted,))}

    def all_chunks(self) -> Iterator[Chunk]:
        """Every chunk, by container and slot."""
        return self._chunks("1 ORDER BY container, slot", ())

    def _chunks(self, condition: str, values: Sequence[object]) -> Iterator[Chunk]:
        query = f"SELECT id, fingerprint, container, slot, offset, room, length, crc, refs FROM chunks WHERE {condition}"
        try:
            for row in self._database.execute(query, values):
                yield self._chunk(row)
        except _FAULTS as error:
            raise self._bad(str(error)) from None

    def _chunk(self, row: tuple) -> Chunk:
        """A row of the table of chunks, checked, because compiled loops and writes follow what it says."""
        id, name, container, slot, offset, room, length, crc, refs = row
        chunk, slots = self._chunker, self._slots
        whole = all(type(value) is int for value in (id, container, slot, offset, room, length, crc, refs))
        fits = whole and 0 < id < MOST_CHUNKS and 0 <= container < MOST_CONTAINERS and 0 <= slot < slots and 0 <= crc < 1 << 32
        fits = fits and 0 <= refs < MOST_CHUNKS and 0 < length <= room <= chunk.longest
        if fits and chunk.name == "fixed":
            fits = room == chunk.chunk and offset == HEAD.size + slot * (SLOT.size + room)
        elif fits:
            fits = HEAD.size <= offset <= HEAD.size + slots * (SLOT.size + chunk.longest)
        if not fits or type(name) is not bytes or len(name) != FINGERPRINT_BYTES:
            raise self._bad(f"chunk {id!r} at container {container!r}, slot {slot!r}, offset {offset!r} of {length!r} bytes")
        return Chunk(id, name, Place(container, slot, offset, room), length, crc, refs)

    def table(self) -> np.ndarray:
        """int64[U, 4]: id, container, slot and length of every chunk, by id."""
        limits = (
            ("id", 1, MOST_CHUNKS), ("container", 0, MOST_CONTAINERS), ("slot", 0, self._slots), ("length", 1, self._chunker.longest + 1),
        )  # fmt: skip
        fits = " AND ".join(f"typeof({name}) = 'integer' AND {name} >= {low} AND {name} < {high}" for name, low, high in limits)
        rows = self._rows(f"SELECT id, container, slot, length FROM chunks WHERE {fits} ORDER BY id")
        if len(rows) != self._rows("SELECT count(*) FROM chunks")[0][0]:
            raise self._bad("chunks at impossible places")
        return np.array(rows, np.int64).reshape(-1, 4)

    def slots_of(self, container: int) -> list[int]:
        """The slots of a container that hold a chunk."""
        return [row[0] for row in self._rows("SELECT slot FROM chunks WHERE container = ?", (container,))]

    def live_containers(self) -> set[int]:
        """Containers that hold a chunk."""
        return {row[0] for row in self._rows("SELECT DISTINCT container FROM chunks")}

    def live_ranges(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """(container, byte ranges of its slots that hold a chunk, ascending) of every container that holds any."""
        for container, chunks in itertools.groupby(self._chunks("1 ORDER BY container, offset", ()), lambda chunk: chunk.place.container):
            yield container, [(c.place.offset, c.place.offset + SLOT.size + c.length) for c in chunks]

    def end_of(self, container: int) -> tuple[int, int]:
        """(slot, offset) after the last chunk of a container; (0, -1) if it holds none."""
        found = self._rows("SELECT slot, offset, room FROM chunks WHERE container = ? ORDER BY slot DESC LIMIT 1", (container,))
        if not found:
            return 0, -1
        slot, offset, room = found[0]
        return slot + 1, offset + room

    def next_id(self) -> int:
        """A chunk number that was never used."""
        return 1 + int(self._rows("SELECT coalesce(max(id), 0) FROM chunks")[0][0])

    def insert(self, chunks: Iterable[Chunk]) -> None:
        """Adds new chunks."""
        places = ((c, c.place) for c in chunks)
        rows = ((c.id, c.fingerprint, p.container, p.slot, p.offset, p.room, c.length, c.crc, c.refs) for c, p in places)
        self._change("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def count(self, changes: dict[int, int]) -> list[int]:
        """Adds to the reference counts of chunks; returns the chunks with none left, which stay until `drop`."""
        self._change("UPDATE chunks SET refs = refs + ? WHERE id = ?", [(by, i) for i, by in changes.items() if by])
        wanted = json.dumps(list(changes))
        return [row[0] for row in self._rows("SELECT id FROM chunks WHERE refs <= 0 AND id IN (SELECT value FROM json_each(?))", (wanted,))]

    def drop(self, ids: Iterable[int]) -> None:
        """Removes chunks to which nothing refers; their slots are free after the transaction."""
        self._change("DELETE FROM chunks WHERE id = ?", [(i,) for i in ids])

    def replace_content(self, id: int, fingerprint: bytes, length: int, crc: int) -> None:
        """Gives a chunk that one file uses once other content in the same slot."""
        self._rows("UPDATE chunks SET fingerprint = ?, length = ?, crc = ? WHERE id = ?", (fingerprint, length, crc, id))

    def move(self, places: Iterable[tuple[int, Place]]) -> None:
        """Gives chunks new places, which is all that a relocation changes."""
        rows = [(p.container, p.slot, p.offset, p.room, i) for i, p in places]
        self._change("UPDATE chunks SET container = ?, slot = ?, offset = ?, room = ? WHERE id = ?", rows)

    def file(self, name: str) -> tuple[int, int] | None:
        """(number, bytes) of a file, if there is one."""
        found = self._rows("SELECT id, size FROM files WHERE name = ?", (name,))
        if not found:
            return None
        self._check_file(name, found[0][1])
        return found[0][0], found[0][1]

    def names(self) -> list[tuple[int, str, int]]:
        """(number, name, bytes) of every file, by name."""
        found = self._rows("SELECT id, name, size FROM files ORDER BY name")
        for _, name, size in found:
            self._check_file(name, size)
        return found

    def _check_file(self, name: object, size: object) -> None:
        if type(size) is not int or not 0 <= size < 1 << 62:
            raise self._bad(f"a file of {size!r} bytes")
        checked_name(name)

    def recipe(self, file: int, start: int = 0, end: int | None = None) -> list[tuple[int, int, np.ndarray]]:
        """(part, start in bytes, chunk numbers) of the parts of a recipe that hold bytes `start` to `end`."""
        rows = self._rows("SELECT part, start, ids FROM recipes WHERE file = ? AND start < ? ORDER BY part",
                          (file, 2**62 if end is None else max(end, 1)))  # fmt: skip
        for part, begin, ids in rows:
            if type(part) is not int or type(begin) is not int or type(ids) is not bytes or len(ids) % 8 or not 0 < len(ids) <= 8 * PART:
                raise self._bad(f"a recipe that begins at {begin!r} with {ids!r:.40}")
        after = ([row[1] for row in rows] + [2**62])[1:]
        return [(row[0], row[1], np.frombuffer(row[2], "<i8")) for row, ends in zip(rows, after, strict=True) if ends > start]

    def set_file(self, name: str, size: int, parts: Iterable[tuple[int, int, np.ndarray]], *, whole: bool = True) -> None:
        """Writes a file's size and these parts of its recipe; with `whole` all others go."""
        self._rows("INSERT INTO files (name, size) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET size = excluded.size", (name, size))
        found = self.file(name)
        assert found is not None
        if whole:
            self._rows("DELETE FROM recipes WHERE file = ?", (found[0],))
        rows = [(found[0], part, start, ids.astype("<i8").tobytes()) for part, start, ids in parts]
        self._change("INSERT OR REPLACE INTO recipes VALUES (?, ?, ?, ?)", rows)

    def remove_file(self, file: int) -> None:
        """Removes a file and its recipe from the index."""
        self._rows("DELETE FROM recipes WHERE file = ?", (file,))
        self._rows("DELETE FROM files WHERE id = ?", (file,))

    def promise(self, place: Place, data: bytes) -> None:
        """Keeps the slot bytes that belong at `place` once this transaction is over."""
        self._rows("INSERT OR REPLACE INTO redo VALUES (?, ?, ?, ?)", (place.container, place.slot, place.offset, data))

    def promised(self) -> list[tuple[int, int, int, bytes]]:
        """(container, slot, offset, slot bytes) of all promises that may not be kept yet.

        Each is checked against the chunk that the index has in that slot, so a promise can only ever write a chunk where it belongs.
        """
        rows = self._rows("SELECT container, slot, offset, data FROM redo")
        for container, slot, offset, data in rows:
            chunk = next(self._chunks("container = ? AND slot = ?", (container, slot)), None)
            wanted = None if chunk is None else (SLOT.pack(chunk.crc, chunk.length, chunk.id), chunk.place.offset, SLOT.size + chunk.length)
            if type(data) is not bytes or wanted != (data[: SLOT.size], offset, len(data)):
                raise self._bad(f"an unfinished update of container {container!r}, slot {slot!r}, which holds another chunk")
        return rows

    def promised_at(self, place: Place) -> bytes | None:
        """The slot bytes promised for one place."""
        found = self._rows("SELECT data FROM redo WHERE container = ? AND slot = ?", (place.container, place.slot))
        return found[0][0] if found and type(found[0][0]) is bytes else None

    def kept(self) -> None:
        """Notes that all promises are on the device."""
        self._rows("DELETE FROM redo")

    def bytes(self) -> int:
        """Bytes of the index's pages in use."""
        pages, free, size = (self._rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size"))
        return int((pages - free) * size)

    def close(self) -> None:
        """Gives the connection back."""
        self._database.close()


def checked_name(name: object) -> str:
    """A name that a store takes: not empty, no NUL, no step that is `..`, no more than 4096 bytes."""
    good = isinstance(name, str) and name and "\0" not in name and ".." not in name.split("/")
    if not isinstance(name, str) or not good or len(name.encode("utf-8", "surrogatepass")) > 4096:
        raise InputError(f'found "{name}"; expected 1 to 4096 bytes without NUL or a step ".."', where="name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"found {name!r}; expected text that UTF-8 can hold", where="name") from None
    return name
