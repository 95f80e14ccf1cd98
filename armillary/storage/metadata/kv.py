"""kv: a key-value store under the file system, with one record per (directory, name) in a log-structured merge tree.

A change goes to a log on the device (one append, one fence) and to a table in memory. A full table becomes a sorted run of 4 KiB blocks,
four young runs are merged into the first level, and each level is merged into the next one, which is ten times as large. A lookup asks
the table and then the runs, youngest first. A Bloom filter (10 bits per key) spares it most runs that cannot have the key, and an index
in memory leads to one block. A directory's records are neighbours, because the key is its number and the name's hash, so a listing reads
one range of every run. Merges run in the background, and blocks that were read are kept in a host cache.

Ren and Gibson, TableFS: enhancing metadata efficiency in the local file system, USENIX ATC 2013; InfiniFS, FAST 2022, keeps metadata in
the same way. One run per level and merging whole levels at once are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.kernels import kernel, part
from armillary.parameters import parameter

from ..idmap import mix
from .simulation.accesses import FENCE, READ, WRITE, emit
from .simulation.engine import EEXIST, ENOENT, ENOTEMPTY, OK, Batch, Engine, MetadataEngine, access_list
from .workload import CREATE, MKDIR, READDIR, READDIRPLUS, RENAME, RMDIR, SETATTR, UNLINK

if TYPE_CHECKING:
    from .workload import Work

BLOCK = 4096
#: Bytes of a record besides its name: directory, hash, object, mode, size, mtime, name length and kind.
FIXED = 56
YOUNG_RUNS, FANOUT = 4, 10
BLOOM_BITS, BLOOM_HASHES = 10, 7
MOST_RUNS = 16
#: Kinds of a record.
GONE, FILE, FOLDER = 0, 1, 2


@dataclass(frozen=True)
class Kv(MetadataEngine):
    """Metadata in a log-structured merge tree, as in TableFS (2013)."""

    memtable: float = parameter(0.125, "table in memory as a share of the device's cache (8 of 64 MiB)", range=(0.001, 8))
    block_cache: float = parameter(0.5, "host cache of blocks as a share of the device's cache", range=(0.001, 64))
    software_us: float = parameter(2.5, "microseconds of software time per operation", range=(0, 100))

    def start(self, work: Work, cache_bytes: int, *, granule: int = 4096) -> KvEngine:
        """Makes an empty store for this work."""
        return KvEngine(work, self, cache_bytes)


#: Numbers in `m`: rows in the table, its bytes, log position, log's length, frames used, newest, oldest, runs.
ROWS, BYTES, LOG_AT, LOG_BYTES, CACHED, NEWEST, OLDEST, RUNS = range(8)
#: Columns of a row.
DIRECTORY, HASH, OBJECT, MODE, SIZE, MTIME, KIND_, NAME_AT, NAME_LENGTH = range(9)


@dataclass
class _Run:
    """One sorted run: where its blocks are, the first key of each, its filter."""

    first: int
    blocks: int
    keys: np.ndarray
    bloom: np.ndarray
    rows: int


class KvEngine(Engine):
    """The log and the runs of one piece of work."""

    def __init__(self, work: Work, how: Kv, cache_bytes: int) -> None:
        super().__init__(work)
        self.how = how
        self.limit = max(16 << 10, int(how.memtable * cache_bytes))
        lengths = np.diff(work.offsets)
        data = (work.creates + 2) * (FIXED + 8 + int(lengths.max(initial=8)))
        log_blocks = (2 * self.limit + (64 << 10)) // BLOCK
        blocks = log_blocks + 1 + 5 * data // BLOCK + 16 * self.limit // BLOCK + 1024
        self.space = np.zeros(blocks * BLOCK, np.uint8)
        frames = max(16, int(how.block_cache * cache_bytes) // BLOCK)
        most = self.limit // FIXED + 64
        self.rows = np.zeros((most, 9), np.int64)
        self.index = np.zeros(1 << (2 * most).bit_length(), np.int32)
        self.count = np.zeros(work.objects + 1, np.int64)
        self.m = np.zeros(8, np.int64)
        self.m[NEWEST] = self.m[OLDEST] = -1
        self.m[LOG_BYTES] = log_blocks * BLOCK
        self.frame_of, self.block_of = np.zeros(blocks, np.int32), np.zeros(frames, np.int64)
        self.newer, self.older = np.full(frames, -1, np.int32), np.full(frames, -1, np.int32)
        #: Free stretches of blocks; young runs, youngest first; one run per level below them.
        self._free = [(log_blocks, blocks - log_blocks)]
        self.young: list[_Run] = []
        self.levels: list[_Run | None] = []
        self._accesses = access_list()
        self._packed()

    def step(self, first: int, last: int) -> tuple[int, np.ndarray, Batch]:
        """Does operations [first, last), or fewer if the table is full; a flush and its merges then follow in the background."""
        work, acc = self.work, self._accesses
        acc[0, 0] = 0
        ends = np.zeros(last - first, np.int64)
        reached = _run(self.space, self.space.view(np.uint64), self.rows, self.index, self.count, self.m, self.frame_of, self.block_of,
                       self.newer, self.older, *self._runs, work.ops, work.attributes, work.text, work.offsets, work.hashes, first, last,
                       self.limit, acc, ends, self.status)  # fmt: skip
        n = reached - first
        before = int(acc[0, 0])
        background = 0
        if reached < last or self.m[BYTES] >= self.limit:
            self._flush(acc)
            background = 1
        starts = np.concatenate([[0], ends[: n - 1]])[:n]
        firsts, lasts = np.append(starts, [before] * background), np.append(ends[:n], [int(acc[0, 0])] * background)
        batch = Batch(firsts.astype(np.int64), lasts.astype(np.int64), np.append(first + np.arange(n), [-1] * background).astype(np.int64),
                      np.full(n + background, -1), np.full(n + background, -1),
                      np.append(np.full(n, self.how.software_us), [0.0] * background), np.zeros(n + background))  # fmt: skip
        return reached, acc[1 : 1 + acc[0, 0]].copy(), batch

    def tree(self) -> dict[tuple[int, bytes], tuple[int, int, int]]:
        """Returns (directory, name) → (id, mode, size), from the runs in the order of their age and then the log."""
        found: dict[tuple[int, bytes], tuple[int, int, int]] = {}
        places = [(run.first * BLOCK, run.blocks) for run in [*reversed([r for r in self.levels if r]), *reversed(self.young)]]
        for start, blocks in places:
            for block in range(blocks):
                self._overlay(found, start + block * BLOCK, start + (block + 1) * BLOCK)
        self._overlay(found, 0, int(self.m[LOG_AT]))
        return found

    def _overlay(self, found: dict[tuple[int, bytes], tuple[int, int, int]], at: int, end: int) -> None:
        words = self.space.view(np.uint64)
        while at + FIXED <= end and words[at // 8]:
            directory, _, number, mode, size, _, kind = (int(x) for x in words[at // 8 : at // 8 + 7])
            length = kind >> 8
            key = directory, self.space[at + FIXED : at + FIXED + length].tobytes()
            if kind & 255 == GONE:
                found.pop(key, None)
            else:
                found[key] = number, mode, size
            at += (FIXED + length + 7) // 8 * 8

    def _take(self, blocks: int) -> int:
        for i, (first, length) in enumerate(self._free):
            if length >= blocks:
                self._free[i] = (first + blocks, length - blocks)
                return first
        raise MemoryError("the store's space is full")

    def _give(self, run: _Run) -> None:
        places = sorted([*self._free, (run.first, run.blocks)])
        joined = [places[0]]
        for first, length in places[1:]:
            before, held = joined[-1]
            if before + held == first:
                joined[-1] = (before, held + length)
            else:
                joined.append((first, length))
        self._free = joined

    def _flush(self, acc: np.ndarray) -> None:
        """Turns the table into a young run and merges full levels down."""
        rows = self.rows[: self.m[ROWS]]
        rows = rows[np.lexsort((rows[:, HASH].view(np.uint64), rows[:, DIRECTORY]))]
        self.young.insert(0, self._write(rows, self.work.text, acc))
        self.m[ROWS] = self.m[BYTES] = self.m[LOG_AT] = 0
        self.space[: self.m[LOG_BYTES]] = 0
        self.index[:] = 0
        if len(self.young) > YOUNG_RUNS:
            self._merge(0, [*self.young, *self.levels[:1]], acc)
            self.young = []
            level, most = 0, self.limit * FANOUT
            while self.levels[level] is not None and self.levels[level].blocks * BLOCK > most:  # type: ignore[union-attr]
                self._merge(level + 1, [self.levels[level], *self.levels[level + 1 : level + 2]], acc)
                self.levels[level] = None
                level, most = level + 1, most * FANOUT
        self._packed()

    def _merge(self, level: int, sources: list[_Run | None], acc: np.ndarray) -> None:
        runs = [run for run in sources if run is not None]
        parts = []
        for run in runs:
            emit_many(acc, run.first * BLOCK, run.blocks * BLOCK, READ)
            rows = np.zeros((run.rows, 9), np.int64)
            _decode(self.space.view(np.uint64), run.first, run.blocks, rows)
            parts.append(rows)
        rows = np.concatenate(parts)
        age = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
        rows = rows[np.lexsort((age, rows[:, HASH].view(np.uint64), rows[:, DIRECTORY]))]
        newest = np.ones(len(rows), np.bool_)
        newest[1:] = (np.diff(rows[:, DIRECTORY]) != 0) | (np.diff(rows[:, HASH].view(np.uint64)) != 0)
        if not any(self.levels[level + 1 :]):
            newest &= rows[:, KIND_] != GONE
        made = self._write(rows[newest], self.space, acc)
        for run in runs:
            self._give(run)
        while len(self.levels) <= level:
            self.levels.append(None)
        self.levels[level] = made

    def _write(self, rows: np.ndarray, text: np.ndarray, acc: np.ndarray) -> _Run:
        sizes = (FIXED + rows[:, NAME_LENGTH] + 7) // 8 * 8
        blocks = _blocks(sizes) if len(rows) else 1
        first = self._take(blocks)
        self.space[first * BLOCK : (first + blocks) * BLOCK] = 0
        keys = np.zeros((blocks, 2), np.uint64)
        bits = max(64, BLOOM_BITS * len(rows))
        bloom = np.zeros(bits // 64 + 1, np.uint64)
        _encode(self.space, self.space.view(np.uint64), rows, text, first, keys, bloom)
        emit_many(acc, first * BLOCK, blocks * BLOCK, WRITE | FENCE)
        # The host cache must not keep the old content of these blocks.
        stale = self.frame_of[first : first + blocks]
        self.block_of[stale[stale > 0] - 1] = -1
        stale[:] = 0
        return _Run(first, blocks, keys, bloom, len(rows))

    def _packed(self) -> None:
        """Returns all runs as arrays for the kernel, youngest first."""
        runs: list[_Run] = [*self.young, *[run for run in self.levels if run is not None]]
        shape = np.zeros((max(1, len(runs)), 6), np.int64)
        key_at = bloom_at = 0
        for i, run in enumerate(runs):
            shape[i] = run.first, run.blocks, key_at, bloom_at, len(run.bloom), run.rows
            key_at, bloom_at = key_at + run.blocks, bloom_at + len(run.bloom)
        keys = np.concatenate([run.keys for run in runs]) if runs else np.zeros((1, 2), np.uint64)
        bloom = np.concatenate([run.bloom for run in runs]) if runs else np.zeros(1, np.uint64)
        self.m[RUNS] = len(runs)
        self._runs: tuple[Any, ...] = (shape, keys, bloom)


def emit_many(acc: np.ndarray, offset: int, length: int, kind: int) -> None:
    """Appends one access of any length, in pieces of at most 1 GiB."""
    while length > 0:
        piece = min(length, 1 << 30)
        n = int(acc[0, 0]) + 1
        acc[n, 0], acc[n, 1] = offset, piece | (kind << 32)
        acc[0, 0] = n
        offset, length = offset + piece, length - piece


@kernel
def _blocks(sizes):
    """Returns the blocks of records of these sizes, where no record crosses a block."""
    blocks, left = 0, 0
    for i in range(len(sizes)):
        if sizes[i] > left:
            blocks += 1
            left = BLOCK
        left -= sizes[i]
    return blocks


@kernel
def _encode(b, w, rows, text, first, keys, bloom):
    block, at = -1, 0
    bits = np.uint64(64 * len(bloom))
    for i in range(len(rows)):
        size = (FIXED + rows[i, NAME_LENGTH] + 7) // 8 * 8
        if block < 0 or at + size > (first + block + 1) * BLOCK:
            block += 1
            at = (first + block) * BLOCK
            keys[block, 0], keys[block, 1] = np.uint64(rows[i, DIRECTORY]), np.uint64(rows[i, HASH])
        _record(b, w, at, rows, i, text)
        h = mix(np.uint64(rows[i, HASH]), np.uint64(rows[i, DIRECTORY]))
        for k in range(BLOOM_HASHES):
            bit = (h + np.uint64(k) * ((h >> np.uint64(32)) | np.uint64(1))) % bits
            bloom[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        at += size


@part
def _record(b, w, at, rows, i, text):
    for c in range(6):
        w[at // 8 + c] = np.uint64(rows[i, c])
    w[at // 8 + 6] = np.uint64(rows[i, KIND_] | (rows[i, NAME_LENGTH] << 8))
    for j in range(rows[i, NAME_LENGTH]):
        b[at + FIXED + j] = text[rows[i, NAME_AT] + j]


@kernel
def _decode(w, first, blocks, rows):
    n = 0
    for block in range(first, first + blocks):
        at = block * BLOCK
        while at + FIXED <= (block + 1) * BLOCK and w[at // 8] != np.uint64(0):
            for c in range(6):
                rows[n, c] = np.int64(w[at // 8 + c])
            word = np.int64(w[at // 8 + 6])
            rows[n, KIND_], rows[n, NAME_LENGTH], rows[n, NAME_AT] = word & 255, word >> 8, at + FIXED
            at += (FIXED + (word >> 8) + 7) // 8 * 8
            n += 1


@kernel
def _read_block(frame_of, block_of, newer, older, m, block, acc):
    """Makes a block the most recent one of the host's cache, and reads it from the device if it is missing."""
    f = frame_of[block] - 1
    if f < 0:
        if m[CACHED] < len(block_of):
            f = m[CACHED]
            m[CACHED] += 1
        else:
            f = np.int64(m[OLDEST])
            if block_of[f] >= 0:
                frame_of[block_of[f]] = 0
            m[OLDEST] = newer[f]
            if m[OLDEST] >= 0:
                older[m[OLDEST]] = -1
            else:
                m[NEWEST] = -1
        block_of[f] = block
        frame_of[block] = f + 1
        emit(acc, block * BLOCK, BLOCK, READ)
    elif m[NEWEST] == f:
        return
    else:
        left, right = newer[f], older[f]
        if left >= 0:
            older[left] = right
        if right >= 0:
            newer[right] = left
        else:
            m[OLDEST] = left
    newer[f], older[f] = -1, m[NEWEST]
    if m[NEWEST] >= 0:
        newer[m[NEWEST]] = f
    m[NEWEST] = f
    if m[OLDEST] < 0:
        m[OLDEST] = f


@part
def _slot(rows, index, directory, name):
    """Returns the table's slot of a key: its own, or the free one where it belongs."""
    i = np.int64(mix(name, np.uint64(directory)) & np.uint64(len(index) - 1))
    while index[i] != 0 and not (rows[index[i] - 1, DIRECTORY] == directory and np.uint64(rows[index[i] - 1, HASH]) == name):
        i = (i + 1) & (len(index) - 1)
    return i


@part
def _first_block(keys, start, blocks, directory, name):
    """Returns the last block whose first key is not above the key, from 0; -1 if there is none."""
    low, high = -1, blocks - 1
    while low < high:
        middle = (low + high + 1) // 2
        k = start + middle
        if keys[k, 0] < directory or (keys[k, 0] == directory and keys[k, 1] <= name):
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _get(b, w, rows, index, m, frame_of, block_of, newer, older, shape, keys, bloom, directory, name, out, acc):
    """Returns whether the key is there; its row is put into `rows[out]`."""
    i = _slot(rows, index, directory, name)
    if index[i] != 0:
        for c in range(9):
            rows[out, c] = rows[index[i] - 1, c]
        return rows[out, KIND_] != GONE
    h = mix(name, np.uint64(directory))
    for r in range(m[RUNS]):
        bits = np.uint64(64 * shape[r, 4])
        maybe = True
        for k in range(BLOOM_HASHES):
            bit = (h + np.uint64(k) * ((h >> np.uint64(32)) | np.uint64(1))) % bits
            if not (bloom[shape[r, 3] + np.int64(bit >> np.uint64(6))] >> (bit & np.uint64(63))) & np.uint64(1):
                maybe = False
                break
        if not maybe:
            continue
        block = _first_block(keys, shape[r, 2], shape[r, 1], np.uint64(directory), name)
        if block < 0:
            continue
        _read_block(frame_of, block_of, newer, older, m, shape[r, 0] + block, acc)
        at = (shape[r, 0] + block) * BLOCK
        end = at + BLOCK
        while at + FIXED <= end and w[at // 8] != np.uint64(0):
            word = np.int64(w[at // 8 + 6])
            if w[at // 8] == np.uint64(directory) and w[at // 8 + 1] == name:
                for c in range(6):
                    rows[out, c] = np.int64(w[at // 8 + c])
                rows[out, KIND_] = word & 255
                return word & 255 != GONE
            at += (FIXED + (word >> 8) + 7) // 8 * 8
    return False


@kernel
def _put(b, w, rows, index, m, directory, name, number, mode, size, mtime, kind, start, length, text, acc, fence):
    """Logs a record and enters it into the table."""
    i = _slot(rows, index, directory, name)
    if index[i] == 0:
        index[i] = m[ROWS] + 1
        m[ROWS] += 1
        m[BYTES] += (FIXED + length + 7) // 8 * 8
    r = index[i] - 1
    rows[r, 0], rows[r, 1], rows[r, 2], rows[r, 3], rows[r, 4] = directory, np.int64(name), number, mode, size
    rows[r, 5], rows[r, 6], rows[r, 7], rows[r, 8] = mtime, kind, start, length
    size_logged = (FIXED + length + 7) // 8 * 8
    _record(b, w, m[LOG_AT], rows, r, text)
    emit(acc, m[LOG_AT], size_logged, WRITE | (FENCE if fence else 0))
    m[LOG_AT] += size_logged


@kernel
def _run(b, w, rows, index, count, m, frame_of, block_of, newer, older, shape, keys, bloom, ops, attributes, text, offsets, hashes, first,
         last, limit, acc, ends, status):  # fmt: skip
    out = len(rows) - 1
    for i in range(first, last):
        if m[BYTES] >= limit or m[LOG_AT] + 2048 > m[LOG_BYTES] or m[ROWS] + 4 >= len(rows) or 2 * m[ROWS] + 8 > len(index):
            return i
        kind, directory, number = ops[i, 0], ops[i, 1], ops[i, 3]
        if acc[0, 0] + 4096 + count[directory] * 4 > len(acc):
            return i
        start, length = offsets[ops[i, 2]], offsets[ops[i, 2] + 1] - offsets[ops[i, 2]]
        name, row = hashes[ops[i, 2]], ops[i, 7]
        ends[i - first] = acc[0, 0]
        if kind in (READDIR, READDIRPLUS):
            for r in range(m[RUNS]):
                block = max(0, _first_block(keys, shape[r, 2], shape[r, 1], np.uint64(directory), np.uint64(0)))
                while block < shape[r, 1] and keys[shape[r, 2] + block, 0] <= np.uint64(directory):
                    _read_block(frame_of, block_of, newer, older, m, shape[r, 0] + block, acc)
                    block += 1
            ends[i - first] = acc[0, 0]
            continue
        there = _get(b, w, rows, index, m, frame_of, block_of, newer, older, shape, keys, bloom, directory, name, out, acc)
        mode, size, mtime = attributes[row, 0], attributes[row, 3], attributes[row, 5]
        if kind in (CREATE, MKDIR):
            if there:
                status[i] = EEXIST
            else:
                what = FOLDER if kind == MKDIR else FILE
                _put(b, w, rows, index, m, directory, name, number, mode, size, mtime, what, start, length, text, acc, True)
                count[directory] += 1
                count[number] = 0
        elif not there:
            status[i] = ENOENT
        elif kind == SETATTR:
            child, what = rows[out, OBJECT], rows[out, KIND_]
            _put(b, w, rows, index, m, directory, name, child, mode, size, mtime, what, start, length, text, acc, True)
        elif kind in (UNLINK, RMDIR):
            if count[rows[out, OBJECT]] > 0:
                status[i] = ENOTEMPTY
            else:
                _put(b, w, rows, index, m, directory, name, 0, 0, 0, 0, GONE, start, length, text, acc, True)
                count[directory] -= 1
        elif kind == RENAME:
            to, second = ops[i, 4], ops[i, 5]
            start2 = offsets[second]
            length2 = offsets[second + 1] - start2
            child, mode, size = rows[out, OBJECT], rows[out, MODE], rows[out, SIZE]
            mtime, what = rows[out, MTIME], rows[out, KIND_]
            other = _get(b, w, rows, index, m, frame_of, block_of, newer, older, shape, keys, bloom, to, hashes[second], out, acc)
            if other and rows[out, OBJECT] == child:
                status[i] = OK
            elif other and count[rows[out, OBJECT]] > 0:
                status[i] = ENOTEMPTY
            else:
                _put(b, w, rows, index, m, directory, name, 0, 0, 0, 0, GONE, start, length, text, acc, False)
                _put(b, w, rows, index, m, to, hashes[second], child, mode, size, mtime, what, start2, length2, text, acc, True)
                count[directory] -= 1
                count[to] += 0 if other else 1
        ends[i - first] = acc[0, 0]
    return last
