"""A deduplicating store in a folder, which keeps every chunk once and loses nothing that it acknowledged.

New chunks are appended to container files. A change counts from the moment its transaction in the index does, and by then its chunks
are on the device. A slot with acknowledged content is overwritten in one case only, an update of a chunk that nobody else uses, and then
the new bytes are in the index first. Relocation writes new containers, changes the map in one transaction and then unlinks the old ones. A
reader finds a chunk at its old or its new place, and looks it up again if the place changed while it was reading.
"""

from __future__ import annotations

import fcntl
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from armillary.errors import InputError
from armillary.files.checksums import crc32c, crc32c_pieces
from armillary.files.stores import open_regular

from ..workload import CONTAINER_BYTES
from .chunking import Chunker, fingerprint
from .containers import HEAD, SLOT, BadSlot, Containers, Place
from .index import MOST_CONTAINERS, PART, Chunk, Index, checked_name
from .inspection import Space, Verification, fragmentation_of, space_of, verified
from .opening import FOLDER, check_folder
from .overwriting import overwrite_range
from .relocate import RelocationReport, move_chunks

if TYPE_CHECKING:
    import polars

#: How often a reader looks again when a chunk has moved under it.
LOOKS = 20


class DedupStore:
    """Files in a folder, deduplicated. One process may write; any number may read it with `readonly=True`. Threads may share it.

    `chunker` is "fixed" or "fastcdc" and `chunk` the size or average in bytes; an existing store must agree. When `put`, `update`,
    `delete` or `relocate` returns, the change outlives a kill of the process, and with `sync` (the default) a loss of power.
    """

    def __init__(
        self, path: str | os.PathLike[str], chunker: str = "fixed", chunk: int = 16384, *, sync: bool = True, readonly: bool = False
    ) -> None:
        self.path, self.chunker, self.readonly = Path(path), Chunker(chunker, chunk), readonly
        self.slots = max(1, CONTAINER_BYTES // chunk)
        self.lock = threading.RLock()
        self._held = -1
        self._closed = False
        self.index: Index = None  # type: ignore[assignment]
        if readonly and not (self.path / "index.sqlite").exists():
            raise InputError("found no store; expected one to read", where=str(self.path))
        check_folder(self.path, writing=not readonly)
        if not readonly:
            (self.path / FOLDER).mkdir(parents=True, exist_ok=True)
            self._hold_alone()
        try:
            self.containers = Containers(self.path / FOLDER, self.chunker, sync=sync, readonly=readonly)
            self.index = Index(self.path / "index.sqlite", self.chunker, self.slots, sync=sync, readonly=readonly)
            self.log = None if readonly else Log(self)
        except BaseException:
            self.close()
            raise

    def _hold_alone(self) -> None:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._held = open_regular(folder, "lock", os.O_RDWR | os.O_CREAT, str(self.path / "lock"))
        finally:
            os.close(folder)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._held)
            raise InputError("found it open for writing elsewhere; expected to be alone", where=str(self.path)) from None

    def put(self, name: str, data: bytes | bytearray | memoryview | BinaryIO | os.PathLike[str]) -> int:
        """Stores bytes, an open binary file or the file at a path under `name`, in place of what was there; returns the bytes taken."""
        if isinstance(data, os.PathLike):
            with open(data, "rb") as file:
                return self.put(name, file)
        with self.writer(name) as writer:
            if isinstance(data, bytes | bytearray | memoryview):
                writer.write(data)
            else:
                for block, ends in self.chunker.pieces(data):
                    writer.take(block, ends)
        return writer.size

    def writer(self, name: str) -> Writer:
        """An open file to write to; any number may be open at once. The file exists as a whole once it is closed."""
        return Writer(self, checked_name(name))

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """`length` bytes of a file from `offset` on, or all up to its end, checked against their checksums."""
        return b"".join(self.pieces(name, offset, length))

    def pieces(self, name: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The same as `get`, in pieces of about one container."""
        if offset < 0 or (length is not None and length < 0):
            raise InputError(f"found offset {offset} and length {length}; expected 0 or more", where=name)
        end, at = None if length is None else offset + length, offset
        while end is None or at < end:
            piece = self._settled(functools.partial(self._piece, name, at, end))
            if not piece:
                return
            yield piece
            at += len(piece)

    def _piece(self, name: str, start: int, end: int | None) -> bytes:
        """Bytes from `start` on, at most 256 chunks of them, as they are in one state of the index."""
        with self.lock, self.index.transaction(write=False):
            file, size = self._found(name)
            end = size if end is None else min(end, size)
            if start >= end:
                return b""
            ids, begin = self._ids_at(file, start, end)
            rows = self.index.by_id(ids)
        if not ids or not begin <= start or any(i not in rows for i in ids):
            raise InputError(f'found no chunk for byte {start} of "{name}"; expected {size} bytes', where=str(self.path))
        return b"".join(self.payloads([rows[i] for i in ids]))[start - begin : end - begin]

    def _ids_at(self, file: int, start: int, end: int) -> tuple[list[int], int]:
        """(at most 256 chunk numbers from the one that holds byte `start` on, where the first of them begins)."""
        parts = self.index.recipe(file, start, start + 1)
        if not parts:
            return [], start
        _, part_start, ids = parts[0]
        if self.chunker.name == "fixed":
            first = (start - part_start) // self.chunker.chunk
            count = min(256, -(-(end - part_start) // self.chunker.chunk) - first)
            return [int(i) for i in ids[first : first + count]], part_start + first * self.chunker.chunk
        rows = self.index.by_id(map(int, ids))
        if any(int(i) not in rows for i in ids):
            return [], start
        ends = part_start + np.cumsum([rows[int(i)].length for i in ids])
        first = int(np.searchsorted(ends, start, side="right"))
        if first == len(ids):
            return [], start
        last = min(first + 256, int(np.searchsorted(ends, end)) + 1)
        return [int(i) for i in ids[first:last]], int(ends[first]) - rows[int(ids[first])].length

    def payloads(self, chunks: list[Chunk]) -> list[bytes]:
        """The bytes of chunks, checked; a promise counts where the slot is not written yet."""
        out, last = [], None
        for chunk in chunks:
            if last is None or last[0] != chunk.id:
                last = (chunk.id, self._payload(chunk))
            out.append(last[1])
        return out

    def _payload(self, chunk: Chunk) -> bytes:
        try:
            return self.containers.read(chunk.place, chunk.length, chunk.crc)
        except BadSlot:
            with self.lock:
                promised = self.index.promised_at(chunk.place)
            if promised is not None and crc32c(memoryview(promised)[SLOT.size : SLOT.size + chunk.length]) == chunk.crc:
                return promised[SLOT.size : SLOT.size + chunk.length]
            raise

    def _settled(self, read: Callable[[], bytes]) -> bytes:
        """The result of `read`, which is tried again while a writer elsewhere moves the chunks that it reads."""
        failed = ""
        for _ in range(LOOKS):
            try:
                return read()
            except BadSlot as error:
                if str(error) == failed:
                    raise
                failed = str(error)
                self.containers.forget_all()
        return read()

    def update(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Overwrites bytes from `offset` on, and the file grows past its end. Other files keep their bytes, and this one its locality."""
        self._writing()
        with self.lock:
            overwrite_range(self, name, offset, bytes(data))

    def delete(self, name: str) -> None:
        """Removes a file; chunks that nobody else uses free their slots."""
        log = self._writing()
        with self.lock, self.index.transaction():
            file, _ = self._found(name)
            log.release(self.recipe_ids(file))
            self.index.remove_file(file)
        self.sweep()

    def relocate(self, budget: float = 0.2, *, slack: float = 0.05, mode: str = "adjacency") -> RelocationReport:
        """One round of relocation: moves at most `budget` of the store's bytes, merged containers included.

        The most scattered files come first, and the space of everything that moved or was deleted goes back to the file system.
        """
        self._writing()
        with self.lock:
            return move_chunks(self, budget, slack, mode)

    def fragmentation(self) -> polars.DataFrame:
        """One row per file: its bytes, chunks, runs and containers, and its containers over those that its bytes would fill."""
        with self.lock, self.index.transaction(write=False):
            return fragmentation_of(self)

    def space(self) -> Space:
        """The bytes of chunks in use, and the bytes that the container files take on the disk."""
        with self.lock, self.index.transaction(write=False):
            return space_of(self)

    def verify(self) -> Verification:
        """Reads every chunk and checks checksums, fingerprints, references and sizes; `faults` lists what is wrong."""
        with self.lock:
            return verified(self)

    def names(self) -> list[str]:
        """All files, by name."""
        with self.lock:
            return [name for _, name, _ in self.index.names()]

    def size(self, name: str) -> int:
        """Bytes of a file."""
        with self.lock:
            return self._found(name)[1]

    def __contains__(self, name: str) -> bool:
        with self.lock:
            return self.index.file(name) is not None

    def dedup_ratio(self) -> float:
        """Logical bytes of all files over bytes of all chunks; 1 for an empty store."""
        with self.lock, self.index.transaction(write=False):
            logical = sum(size for _, _, size in self.index.names())
            physical = int(self.index.table()[:, 3].sum())
        return logical / physical if physical else 1.0

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Releases the folder; nothing is lost without it."""
        self._closed = True
        if getattr(self, "containers", None) is not None:
            self.containers.close()
        if self.index is not None:
            self.index.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def __enter__(self) -> DedupStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def recipe_ids(self, file: int) -> list[int]:
        """All chunk numbers of a file, in the order of its bytes."""
        return [int(i) for _, _, ids in self.index.recipe(file) for i in ids]

    def sweep(self) -> None:
        """Unlinks containers that hold nothing."""
        assert self.log is not None
        with self.lock:
            live = self.index.live_containers() | self.log.in_use()
            self.containers.remove(number for number in self.containers.numbers() if number not in live)

    def reclaim(self) -> None:
        """Gives the space of slots that hold nothing back to the file system, in all containers that nobody is writing to."""
        assert self.log is not None
        with self.lock:
            writing = self.log.in_use()
            for number, live in self.index.live_ranges():
                if number not in writing:
                    self.containers.punch(number, live)

    def _found(self, name: str) -> tuple[int, int]:
        found = self.index.file(checked_name(name))
        if found is None:
            raise InputError(f'found no file "{name}"; expected one of the store', where=str(self.path))
        return found

    def _writing(self) -> Log:
        if self.log is None:
            raise InputError("found it opened for reading; expected a store that may be written", where=str(self.path))
        return self.log


class Log:
    """The end of the store, where new chunks go, and the chunks that no transaction knows yet. It lives while the store is open."""

    def __init__(self, store: DedupStore) -> None:
        self.store = store
        index, containers = store.index, store.containers
        # Every row is checked before the first byte is written.
        dead = [chunk.id for chunk in index.all_chunks() if chunk.refs <= 0]
        log = index.get("log") or 0
        if type(log) is not int or not 0 <= log < MOST_CONTAINERS:
            raise InputError(f"found {log!r} for the last container; expected its number", where=index.where)
        for number, _, offset, data in index.promised():
            containers.write(number, offset, data)
        containers.flush()
        with index.transaction():
            index.kept()
            index.drop(dead)
        self.next_id = index.next_id()
        live = index.live_containers()
        #: The container that is written to, its next free slot, and where that begins.
        self.container = log
        self.slot, end = index.end_of(self.container)
        self.offset = HEAD.size if end < 0 else end + SLOT.size
        self.next_container = 1 + max([self.container, *live])
        #: Chunks that are written and in no transaction yet, by fingerprint and by number.
        self.fresh: dict[bytes, Chunk] = {}
        #: References of files that are still being written, by chunk number: such a chunk stays.
        self.pins: Counter[int] = Counter()
        containers.remove(number for number in containers.numbers() if number not in live and number != self.container)

    def in_use(self) -> set[int]:
        """Containers that hold chunks of files that are still being written, and the one at the end."""
        return {chunk.place.container for chunk in self.fresh.values()} | {self.container}

    def new_container(self) -> int:
        """The number of a container that has no file."""
        self.next_container += 1
        return self.next_container - 1

    def next_place(self, length: int) -> Place:
        """The next slot at the end, for a payload of `length` bytes."""
        store = self.store
        if self.slot >= store.slots:
            self.container, self.slot, self.offset = self.new_container(), 0, HEAD.size
        if store.chunker.name == "fixed":
            place = store.containers.fixed_place(self.container, self.slot)
        else:
            place = Place(self.container, self.slot, self.offset, length)
            self.offset += SLOT.size + length
        self.slot += 1
        return place

    def add(self, data: bytes | memoryview, ends: np.ndarray) -> list[int]:
        """The numbers of the chunks of `data`, each pinned once; new chunks are written."""
        array, view = np.frombuffer(data, np.uint8), memoryview(data)
        sums = crc32c_pieces(array, ends).tolist()
        begins = [0, *ends.tolist()]
        names = [fingerprint(view[begins[k] : begins[k + 1]]) for k in range(len(ends))]
        stored = self.store.index.ids_of(names)
        ids: list[int] = []
        waiting: list[bytes | memoryview] = []
        first, after, padding = None, -1, self._padding()
        for k, name in enumerate(names):
            known = stored.get(name)
            if known is None and name in self.fresh:
                known = self.fresh[name].id
            if known is None:
                payload, known = view[begins[k] : begins[k + 1]], self.next_id
                place = self.next_place(len(payload))
                if first is None or place.container != first.container or place.offset != after:
                    self._write(first, waiting)
                    first, waiting = place, []
                waiting += (SLOT.pack(sums[k], len(payload), known), payload, padding(len(payload)))
                after = place.offset + SLOT.size + place.room
                self.fresh[name] = Chunk(known, name, place, len(payload), sums[k], 0)
                self.next_id += 1
            self.pins[known] += 1
            ids.append(known)
        self._write(first, waiting)
        return ids

    def _padding(self) -> Callable[[int], bytes]:
        """Zeros after a payload, where slots have fixed places."""
        chunker = self.store.chunker
        return lambda length: bytes(chunker.chunk - length) if chunker.name == "fixed" else b""

    def _write(self, first: Place | None, data: list[bytes | memoryview]) -> None:
        if first is not None and data:
            self.store.containers.write(first.container, first.offset, b"".join(data))

    def commit(self, ids: Iterable[int]) -> None:
        """Makes these pinned references part of a file, inside a transaction."""
        counted = Counter(ids)
        self.store.index.insert(chunk for chunk in self.fresh.values() if chunk.id in counted)
        self.store.index.count(dict(counted))
        self.store.index.keep("log", self.container)

    def release(self, ids: Iterable[int]) -> None:
        """Drops the references of a removed file, inside a transaction; chunks without any leave unless a writer holds them."""
        counted = Counter(ids)
        dead = self.store.index.count({i: -n for i, n in counted.items()})
        self.store.index.drop(i for i in dead if not self.pins[i])

    def unpin(self, ids: Iterable[int], *, committed: bool) -> None:
        """Ends a writer's hold on these references."""
        counted = Counter(ids)
        self.pins.subtract(counted)
        self.pins += Counter()
        names = [name for name, chunk in self.fresh.items() if chunk.id in counted and (committed or not self.pins[chunk.id])]
        for name in names:
            del self.fresh[name]


class Writer:
    """A file while it is written. Chunks are stored when they are complete; `close` creates the file, and `abort` forgets it."""

    def __init__(self, store: DedupStore, name: str) -> None:
        self.store, self.name, self.size = store, name, 0
        self._log = store._writing()
        self._ids: list[int] = []
        self._starts: list[int] = []
        self._held = b""
        self._open = True

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Takes bytes; whole chunks of them are stored now."""
        chunker = self.store.chunker
        block = self._held + bytes(data) if self._held else data
        ends = chunker.cuts(block)
        if chunker.name == "fixed":
            sure = len(block) // chunker.chunk
        else:
            begins = np.concatenate(([0], ends[:-1])) if len(ends) else ends
            sure = int(np.searchsorted(begins, len(block) - chunker.longest, side="right"))
        stop = int(ends[sure - 1]) if sure else 0
        if sure:
            self.take(memoryview(block)[:stop], ends[:sure])
        self._held = bytes(memoryview(block)[stop:])
        return len(data)

    def take(self, data: bytes | memoryview, ends: np.ndarray) -> None:
        """Stores chunks that end at `ends`."""
        if not self._open:
            raise InputError("found it closed; expected an open file", where=self.name)
        with self.store.lock:
            begins = self.size + np.concatenate(([0], ends[:-1])) if len(ends) else ends
            self._ids += self._log.add(data, ends)
            self._starts += begins.tolist()
            self.size += len(data)

    def close(self) -> None:
        """Creates the file, in place of one of that name; it is on the device when this returns."""
        if not self._open:
            return
        store = self.store
        if self._held:
            self.take(self._held, store.chunker.cuts(self._held))
        with store.lock:
            store.containers.flush()
            with store.index.transaction():
                self._log.commit(self._ids)
                old = store.index.file(self.name)
                if old is not None:
                    self._log.release(store.recipe_ids(old[0]))
                store.index.set_file(self.name, self.size, recipe_parts(self._ids, self._starts))
            self._log.unpin(self._ids, committed=True)
            self._open = False
            if old is not None:
                store.sweep()

    def abort(self) -> None:
        """Forgets everything that was written; none of it is in the store."""
        if self._open:
            self._open = False
            with self.store.lock:
                self._log.unpin(self._ids, committed=False)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def recipe_parts(ids: list[int], starts: list[int], first: int = 0) -> list[tuple[int, int, Any]]:
    """(part, its first byte, chunk numbers) of a recipe, numbered from `first`."""
    found = []
    for number, at in enumerate(range(0, len(ids), PART), start=first):
        found.append((number, starts[at], np.array(ids[at : at + PART], np.int64)))
    return found
