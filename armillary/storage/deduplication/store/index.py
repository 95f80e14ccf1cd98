"""The index of a store in SQLite (WAL): names, recipes of logical chunk numbers, and the place of each chunk.

When a chunk moves, no recipe changes, only the chunk's row does. Every change of the store is one transaction, so a reader in this process
or another sees the store before it or after it. `redo` holds the content of slots that are being overwritten in place, from
the transaction that says so until the slot is known to be on the device.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError

from .chunking import Chunker
from .containers import Place

VERSION = 1
#: Chunk numbers in one row of a recipe, so that an update rewrites one row instead of the whole recipe.
PART = 512
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
        where = str(path)
        try:
            target = f"{path.resolve().as_uri()}?mode=ro" if readonly else str(path)
            self._database = sqlite3.connect(target, uri=readonly, isolation_level=None, check_same_thread=False, timeout=60)
            self._database.execute("PRAGMA busy_timeout = 60000")
            if not readonly:
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
            self._prepare(chunker, slots, readonly, where)
        except sqlite3.DatabaseError as error:
            raise InputError(f"found {error}; expected the index of a store", where=where) from None

    def _prepare(self, chunker: Chunker, slots: int, readonly: bool, where: str) -> None:
        wanted = {"version": VERSION, "chunker": chunker.name, "chunk": chunker.chunk, "slots": slots}
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'") and not readonly:
            with self.transaction():
                for statement in SCHEMA.split(";"):
                    self._database.execute(statement)
                for key, value in wanted.items():
                    self.keep(key, value)
        found = {key: self.get(key) for key in wanted}
        if found != wanted:
            raise InputError(f"found a store of {found['chunker']} {found['chunk']}, version {found['version']}; "
                             f"expected {chunker.name} {chunker.chunk}, version {VERSION}", where=where)  # fmt: skip

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        return self._database.execute(query, values).fetchall()

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """A transaction, of which all or nothing happens; without `write`, one state of the index for several queries."""
        self._database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def get(self, key: str) -> object:
        """A setting of the store, or None."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def keep(self, key: str, value: object) -> None:
        """Keeps a setting of the store."""
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

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
        for row in self._database.execute(query, values):
            yield Chunk(row[0], row[1], Place(*row[2:6]), *row[6:])

    def table(self) -> np.ndarray:
        """int64[U, 4]: id, container, slot and length of every chunk, by id."""
        rows = self._rows("SELECT id, container, slot, length FROM chunks ORDER BY id")
        return np.array(rows, np.int64).reshape(-1, 4)

    def slots_of(self, container: int) -> list[int]:
        """The slots of a container that hold a chunk."""
        return [row[0] for row in self._rows("SELECT slot FROM chunks WHERE container = ?", (container,))]

    def live_containers(self) -> set[int]:
        """Containers that hold a chunk."""
        return {row[0] for row in self._rows("SELECT DISTINCT container FROM chunks")}

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
        self._database.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def count(self, changes: dict[int, int]) -> list[int]:
        """Adds to the reference counts of chunks; returns the chunks with none left, which stay until `drop`."""
        self._database.executemany("UPDATE chunks SET refs = refs + ? WHERE id = ?", [(by, i) for i, by in changes.items() if by])
        wanted = json.dumps(list(changes))
        return [row[0] for row in self._rows("SELECT id FROM chunks WHERE refs <= 0 AND id IN (SELECT value FROM json_each(?))", (wanted,))]

    def drop(self, ids: Iterable[int]) -> None:
        """Removes chunks to which nothing refers; their slots are free after the transaction."""
        self._database.executemany("DELETE FROM chunks WHERE id = ?", [(i,) for i in ids])

    def replace_content(self, id: int, fingerprint: bytes, length: int, crc: int) -> None:
        """Gives a chunk that one file uses once other content in the same slot."""
        self._database.execute("UPDATE chunks SET fingerprint = ?, length = ?, crc = ? WHERE id = ?", (fingerprint, length, crc, id))

    def move(self, places: Iterable[tuple[int, Place]]) -> None:
        """Gives chunks new places, which is all that a relocation changes."""
        rows = [(p.container, p.slot, p.offset, p.room, i) for i, p in places]
        self._database.executemany("UPDATE chunks SET container = ?, slot = ?, offset = ?, room = ? WHERE id = ?", rows)

    def file(self, name: str) -> tuple[int, int] | None:
        """(number, bytes) of a file, if there is one."""
        found = self._rows("SELECT id, size FROM files WHERE name = ?", (name,))
        return (found[0][0], found[0][1]) if found else None

    def names(self) -> list[tuple[int, str, int]]:
        """(number, name, bytes) of every file, by name."""
        return self._rows("SELECT id, name, size FROM files ORDER BY name")

    def recipe(self, file: int, start: int = 0, end: int | None = None) -> list[tuple[int, int, np.ndarray]]:
        """(part, start in bytes, chunk numbers) of the parts of a recipe that hold bytes `start` to `end`."""
        rows = self._rows("SELECT part, start, ids FROM recipes WHERE file = ? AND start < ? ORDER BY part",
                          (file, 2**62 if end is None else max(end, 1)))  # fmt: skip
        after = ([row[1] for row in rows] + [2**62])[1:]
        return [(row[0], row[1], np.frombuffer(row[2], "<i8")) for row, ends in zip(rows, after, strict=True) if ends > start]

    def set_file(self, name: str, size: int, parts: Iterable[tuple[int, int, np.ndarray]], *, whole: bool = True) -> None:
        """Writes a file's size and these parts of its recipe; with `whole` all others go."""
        self._database.execute(
            "INSERT INTO files (name, size) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET size = excluded.size", (name, size)
        )
        found = self.file(name)
        assert found is not None
        if whole:
            self._database.execute("DELETE FROM recipes WHERE file = ?", (found[0],))
        rows = [(found[0], part, start, ids.astype("<i8").tobytes()) for part, start, ids in parts]
        self._database.executemany("INSERT OR REPLACE INTO recipes VALUES (?, ?, ?, ?)", rows)

    def remove_file(self, file: int) -> None:
        """Removes a file and its recipe from the index."""
        self._database.execute("DELETE FROM recipes WHERE file = ?", (file,))
        self._database.execute("DELETE FROM files WHERE id = ?", (file,))

    def promise(self, place: Place, data: bytes) -> None:
        """Keeps the slot bytes that belong at `place` once this transaction is over."""
        self._database.execute("INSERT OR REPLACE INTO redo VALUES (?, ?, ?, ?)", (place.container, place.slot, place.offset, data))

    def promised(self) -> list[tuple[int, int, int, bytes]]:
        """(container, slot, offset, slot bytes) of all promises that may not be kept yet."""
        return self._rows("SELECT container, slot, offset, data FROM redo")

    def promised_at(self, place: Place) -> bytes | None:
        """The slot bytes promised for one place."""
        found = self._rows("SELECT data FROM redo WHERE container = ? AND slot = ?", (place.container, place.slot))
        return found[0][0] if found else None

    def kept(self) -> None:
        """Notes that all promises are on the device."""
        self._database.execute("DELETE FROM redo")

    def bytes(self) -> int:
        """Bytes of the index's pages in use."""
        pages, free, size = (self._rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size"))
        return int((pages - free) * size)

    def close(self) -> None:
        """Gives the connection back."""
        self._database.close()
