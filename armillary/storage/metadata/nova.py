"""nova: one log per inode, so that every change is one short append, with an index in host memory that knows where everything is.

An inode (128 B) is in the table of the CPU that made it. A directory's log is a chain of 4 KiB pages with an entry of 64-byte multiples
for every name that came or went, and the inode's tail makes an append valid. A create writes the entry and the child's inode, a fence,
the parent's tail, and a fence. Names are found by the index in host memory, so a lookup reads nothing from the device, a stat reads only
the child's inode, and a listing reads each child's inode. The published system reads names from the log, so this reading favours NOVA. A
log that is less than half live is rewritten. Changes hold the directory's lock.

Xu and Swanson, NOVA: a log-structured file system for hybrid volatile/non-volatile main memories, FAST 2016. Attributes that change later
are entries of the inode's own log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.parameters import parameter

from ..idmap import mix
from ..queue import append, kernel, part, unlink
from .simulation.accesses import FENCE, READ, WRITE, emit
from .simulation.engine import EEXIST, ENOENT, ENOTEMPTY, OK, Batch, Engine, MetadataEngine, access_list, plain_batch
from .workload import CHANGES, CREATE, MKDIR, READDIR, READDIRPLUS, RENAME, RMDIR, SETATTR, UNLINK

if TYPE_CHECKING:
    from .workload import Work

PAGE, INODE, ENTRY = 4096, 128, 64
#: Inodes of one chunk of a CPU's table: 64 KiB.
CHUNK_INODES = 512
ADD, DROP, ATTRIBUTES = 1, 2, 3
#: Columns of `objects`: inode's offset, log's first page, tail, bytes live, bytes used, offset of the name's entry, its length, parent,
#: name hash, kind.
AT, LOG, TAIL, LIVE, USED, NAMED, NAMED_LENGTH, PARENT, HASH, IS_DIR, COUNT, NAME_NUMBER = range(12)
PAGES_USED, FREE_PAGE = 0, 1


class _Nova(NamedTuple):
    b: np.ndarray
    w: np.ndarray
    objects: np.ndarray
    table: np.ndarray
    first: np.ndarray
    last: np.ndarray
    before: np.ndarray
    after: np.ndarray
    #: Inodes left in each CPU's chunk, and where its next one goes.
    cpu: np.ndarray
    page_link: np.ndarray
    m: np.ndarray


@dataclass(frozen=True)
class Nova(MetadataEngine):
    """NOVA (FAST 2016) with per-inode logs, per-CPU inode tables and an index in host memory."""

    cpus: int = parameter(16, "CPUs, each with an inode table", range=(1, 256))
    software_us: float = parameter(1.6, "microseconds of software time per operation", range=(0, 100))

    def start(self, work: Work, cache_bytes: int, *, granule: int = 4096) -> NovaEngine:
        """Makes an empty space for this work."""
        return NovaEngine(work, self)


class NovaEngine(Engine):
    """The space of one piece of work."""

    def __init__(self, work: Work, how: Nova) -> None:
        super().__init__(work)
        self.how = how
        n = work.objects + 1
        changes = int(np.isin(work.ops[:, 0], CHANGES).sum())
        pages = 16 * how.cpus + 2 * n * INODE // PAGE + 2 * len(work.directories) + int((work.ops[:, 0] == SETATTR).sum())
        pages += 2 * changes * 5 * ENTRY // PAGE + 1024
        self.space = np.zeros(pages * PAGE, np.uint8)
        bits = max(10, int(2 * n).bit_length())
        self.state = _Nova(
            self.space, self.space.view(np.uint64), np.zeros((n, 12), np.int64), np.zeros(1 << bits, np.int64), np.full(n, -1, np.int32),
            np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros((how.cpus, 2), np.int64),
            np.zeros(pages, np.int32), np.array([1, 0], np.int64),
        )  # fmt: skip
        self._accesses = access_list()
        _new_inode(self.state, 1, 0, 0o40755, 0, 0, True, self._accesses)

    def step(self, first: int, last: int) -> tuple[int, np.ndarray, Batch]:
        """Does operations [first, last) or fewer."""
        work, acc = self.work, self._accesses
        acc[0, 0] = 0
        ends = np.zeros(last - first, np.int64)
        reached = _run(self.state, work.ops, work.attributes, work.text, work.offsets, work.hashes, first, last, self.how.cpus, acc, ends,
                       self.status)  # fmt: skip
        if reached == first:
            raise InputError("the space is full")
        ops = work.ops[first:reached]
        lock = np.where(np.isin(ops[:, 0], (CREATE, MKDIR, UNLINK, RMDIR, RENAME)), work.directory_rows[ops[:, 1]], -1)
        return reached, acc[1 : 1 + acc[0, 0]].copy(), plain_batch(ends[: reached - first], first, -1, lock, self.how.software_us, 0.0)

    def tree(self) -> dict[tuple[int, bytes], tuple[int, int, int]]:
        """Returns (directory, name) → (id, mode, size), by replaying every directory's log from the root's inode on."""
        found = {}
        todo = [int(self.state.objects[1, AT])]
        while todo:
            inode = todo.pop()
            directory = int(self.state.w[inode // 8])
            names: dict[bytes, int] = {}
            for kind, at in self._log(inode):
                length = int(self.space[at + 1])
                name = self.space[at + 24 : at + 24 + length].tobytes()
                if kind == ADD:
                    names[name] = int(self.state.w[at // 8 + 1])
                elif kind == DROP:
                    del names[name]
            for name, child in names.items():
                mode, size = int(self.state.w[child // 8 + 1]), int(self.state.w[child // 8 + 2])
                for kind, at in self._log(child):
                    if kind == ATTRIBUTES:
                        mode, size = int(self.state.w[at // 8 + 1]), int(self.state.w[at // 8 + 2])
                found[directory, name] = int(self.state.w[child // 8]), mode, size
                if self.state.w[child // 8 + 6]:
                    todo.append(child)
        return found

    def _log(self, inode: int) -> list[tuple[int, int]]:
        at, tail = (int(x) for x in self.state.w[inode // 8 + 4 : inode // 8 + 6])
        entries: list[tuple[int, int]] = []
        while at and at != tail:
            if at % PAGE == PAGE - ENTRY or self.space[at] == 0:
                at = int(self.state.w[(at // PAGE * PAGE + PAGE - ENTRY) // 8])
                continue
            entries.append((int(self.space[at]), at))
            at += ENTRY * int(self.space[at + 2])
        return entries


@part
def _new_page(s):
    page = s.m[FREE_PAGE]
    if page:
        s.m[FREE_PAGE] = s.page_link[page]
    else:
        page = s.m[PAGES_USED]
        s.m[PAGES_USED] += 1
    for i in range(page * (PAGE // 8), (page + 1) * (PAGE // 8)):
        s.w[i] = np.uint64(0)
    return page * PAGE


@kernel
def _new_inode(s, number, cpu, mode, size, mtime, directory, acc):
    """Takes an inode in the CPU's table; the caller fences."""
    if s.cpu[cpu, 0] == 0:
        first = s.m[PAGES_USED]
        s.m[PAGES_USED] += CHUNK_INODES * INODE // PAGE
        s.cpu[cpu, 0] = CHUNK_INODES
        s.cpu[cpu, 1] = first * PAGE
    at = s.cpu[cpu, 1]
    s.cpu[cpu, 1] += INODE
    s.cpu[cpu, 0] -= 1
    i = at // 8
    s.w[i], s.w[i + 1], s.w[i + 2], s.w[i + 3] = np.uint64(number), np.uint64(mode), np.uint64(size), np.uint64(mtime)
    s.w[i + 4], s.w[i + 5], s.w[i + 6] = np.uint64(0), np.uint64(0), np.uint64(1 if directory else 0)
    emit(acc, at, INODE, WRITE)
    for c in range(12):
        s.objects[number, c] = 0
    s.objects[number, AT] = at
    s.objects[number, IS_DIR] = 1 if directory else 0


@kernel
def _room(s, number, length, acc):
    """Returns where the next entry of `length` bytes goes in an inode's log, to which a page is added if the last is full."""
    o = s.objects[number]
    if o[LOG] == 0:
        o[LOG] = _new_page(s)
        o[TAIL] = o[LOG]
        s.w[o[AT] // 8 + 4] = np.uint64(o[LOG])
    elif o[TAIL] % PAGE + length > PAGE - ENTRY:
        page = _new_page(s)
        end = o[TAIL] // PAGE * PAGE + PAGE - ENTRY
        s.w[end // 8] = np.uint64(page)
        emit(acc, end, 8, WRITE)
        o[TAIL] = page
    at = o[TAIL]
    o[TAIL] += length
    o[USED] += length
    return at


@part
def _commit(s, number, acc):
    """Writes the inode's tail, which makes the entries before it valid."""
    at = s.objects[number, AT]
    s.w[at // 8 + 5] = np.uint64(s.objects[number, TAIL])
    emit(acc, at + 32, 16, WRITE | FENCE)


@kernel
def _log_name(s, kind, directory, child, text, start, length, acc):
    """Appends the coming or going of a name; returns the entry's offset."""
    size = (24 + length + ENTRY - 1) // ENTRY * ENTRY
    at = _room(s, directory, size, acc)
    s.b[at], s.b[at + 1], s.b[at + 2] = kind, length, size // ENTRY
    s.w[at // 8 + 1] = np.uint64(s.objects[child, AT])
    for i in range(length):
        s.b[at + 24 + i] = text[start + i]
    emit(acc, at, size, WRITE)
    if kind == ADD:
        s.objects[child, NAMED], s.objects[child, NAMED_LENGTH] = at, size
        s.objects[directory, LIVE] += size
    else:
        s.objects[directory, LIVE] -= s.objects[child, NAMED_LENGTH]
    return at


@kernel
def _settled(s, number, acc):
    """Writes the newest attributes of a log into its inode, where they count once the log is gone."""
    o = s.objects[number]
    at, newest = o[LOG], np.int64(0)
    while at != o[TAIL]:
        if at % PAGE == PAGE - ENTRY or s.b[at] == 0:
            at = np.int64(s.w[(at // PAGE * PAGE + PAGE - ENTRY) // 8])
            continue
        if s.b[at] == ATTRIBUTES:
            newest = at
        at += ENTRY * np.int64(s.b[at + 2])
    if newest:
        s.w[o[AT] // 8 + 1], s.w[o[AT] // 8 + 2] = s.w[newest // 8 + 1], s.w[newest // 8 + 2]
        emit(acc, newest, ENTRY, READ)
        emit(acc, o[AT] + 8, 16, WRITE | FENCE)


@kernel
def _clean(s, directory, acc):
    """Writes a log's live entries to new pages when less than half of it is live; the inode's head and tail make them valid."""
    o = s.objects[directory]
    if o[USED] <= PAGE or 2 * o[LIVE] >= o[USED]:
        return
    old, last = o[LOG], o[TAIL] // PAGE * PAGE
    _settled(s, directory, acc)
    o[LOG], o[USED], o[TAIL] = 0, 0, 0
    child = s.first[directory]
    o[LOG] = _new_page(s)
    o[TAIL] = o[LOG]
    while child >= 0:
        source, size = s.objects[child, NAMED], s.objects[child, NAMED_LENGTH]
        at = _room(s, directory, size, acc)
        for i in range(size // 8):
            s.w[at // 8 + i] = s.w[source // 8 + i]
        emit(acc, source, size, READ)
        emit(acc, at, size, WRITE)
        s.objects[child, NAMED] = at
        child = s.after[child]
    s.w[o[AT] // 8 + 4] = np.uint64(o[LOG])
    acc[acc[0, 0], 1] |= np.int64(FENCE) << 32
    _commit(s, directory, acc)
    page = old
    while True:
        after = np.int64(s.w[(page + PAGE - ENTRY) // 8])
        s.page_link[page // PAGE] = s.m[FREE_PAGE]
        s.m[FREE_PAGE] = page // PAGE
        if page == last or after == 0:
            return
        page = after


@part
def _home(s, directory, name):
    return np.int64(mix(name, np.uint64(directory)) & np.uint64(len(s.table) - 1))


@kernel
def _find(s, directory, name):
    """Returns the child of this name, by the index in host memory; 0 if there is none."""
    i = _home(s, directory, name)
    while s.table[i] != 0:
        o = s.table[i]
        if s.objects[o, PARENT] == directory and np.uint64(s.objects[o, HASH]) == name:
            return o
        i = (i + 1) & (len(s.table) - 1)
    return 0


@kernel
def _enter(s, directory, child, name):
    s.objects[child, PARENT], s.objects[child, HASH] = directory, np.int64(name)
    i = _home(s, directory, name)
    while s.table[i] != 0:
        i = (i + 1) & (len(s.table) - 1)
    s.table[i] = child
    append(s.first, s.last, s.before, s.after, directory, child)
    s.objects[directory, COUNT] += 1


@kernel
def _forget(s, directory, child, name):
    last = len(s.table) - 1
    i = _home(s, directory, name)
    while s.table[i] != child:
        i = (i + 1) & last
    # Entries behind the hole move up, unless that would put them before their home.
    j = i
    while True:
        s.table[i] = 0
        while True:
            j = (j + 1) & last
            if s.table[j] == 0:
                unlink(s.first, s.last, s.before, s.after, directory, child)
                s.objects[directory, COUNT] -= 1
                return
            home = _home(s, s.objects[s.table[j], PARENT], np.uint64(s.objects[s.table[j], HASH]))
            if not ((i < home <= j) if i <= j else (i < home or home <= j)):
                break
        s.table[i] = s.table[j]
        i = j


@kernel
def _stat(s, child, acc):
    emit(acc, s.objects[child, AT], INODE, READ)
    if s.objects[child, LOG] and not s.objects[child, IS_DIR]:
        emit(acc, s.objects[child, TAIL] - ENTRY, ENTRY, READ)


@kernel
def _list(s, directory, plus, acc):
    """Reads each child's inode; the names are in the index."""
    if plus:
        child = s.first[directory]
        while child >= 0:
            _stat(s, child, acc)
            child = s.after[child]


@kernel
def _change(s, i, ops, attributes, text, offsets, hashes, cpus, acc):
    kind, directory, number = ops[i, 0], ops[i, 1], ops[i, 3]
    start, length = offsets[ops[i, 2]], offsets[ops[i, 2] + 1] - offsets[ops[i, 2]]
    name, row = hashes[ops[i, 2]], ops[i, 7]
    child = _find(s, directory, name)
    if kind in (CREATE, MKDIR):
        if child:
            return EEXIST
        _new_inode(s, number, ops[i, 6] % cpus, attributes[row, 0], attributes[row, 3], attributes[row, 5], kind == MKDIR, acc)
        _log_name(s, ADD, directory, number, text, start, length, acc)
        acc[acc[0, 0], 1] |= np.int64(FENCE) << 32
        _commit(s, directory, acc)
        _enter(s, directory, number, name)
        return OK
    if not child:
        return ENOENT
    if kind == SETATTR:
        at = _room(s, child, ENTRY, acc)
        s.b[at], s.b[at + 2] = ATTRIBUTES, 1
        s.w[at // 8 + 1], s.w[at // 8 + 2] = np.uint64(attributes[row, 0]), np.uint64(attributes[row, 3])
        emit(acc, at, ENTRY, WRITE | FENCE)
        _commit(s, child, acc)
        return OK
    if kind == RENAME:
        to, second = ops[i, 4], ops[i, 5]
        other = _find(s, to, hashes[second])
        if other == child:
            return OK
        if other and s.objects[other, COUNT]:
            return ENOTEMPTY
        start2 = offsets[second]
        length2 = offsets[second + 1] - start2
        # A small journal keeps the two tails together: one line before, one after.
        emit(acc, 0, ENTRY, WRITE | FENCE)
        if other:
            _log_name(s, DROP, to, other, text, start2, length2, acc)
            _forget(s, to, other, hashes[second])
        _log_name(s, DROP, directory, child, text, start, length, acc)
        _forget(s, directory, child, name)
        _log_name(s, ADD, to, child, text, start2, length2, acc)
        acc[acc[0, 0], 1] |= np.int64(FENCE) << 32
        _enter(s, to, child, hashes[second])
        _commit(s, directory, acc)
        if to != directory:
            _commit(s, to, acc)
        emit(acc, 0, ENTRY, WRITE | FENCE)
        _clean(s, directory, acc)
        return OK
    if s.objects[child, COUNT]:
        return ENOTEMPTY
    _log_name(s, DROP, directory, child, text, start, length, acc)
    emit(acc, s.objects[child, AT], 8, WRITE | FENCE)
    _commit(s, directory, acc)
    _forget(s, directory, child, name)
    _clean(s, directory, acc)
    return OK


@kernel
def _run(s, ops, attributes, text, offsets, hashes, first, last, cpus, acc, ends, status):
    for i in range(first, last):
        kind, directory = ops[i, 0], ops[i, 1]
        if acc[0, 0] + 4096 + 4 * s.objects[directory, COUNT] > len(acc) or (
            s.m[PAGES_USED] + 64 + s.objects[directory, LIVE] // 2048
        ) * PAGE > len(s.b):
            return i
        if kind in (READDIR, READDIRPLUS):
            _list(s, directory, kind == READDIRPLUS, acc)
        elif kind in (CREATE, MKDIR, UNLINK, RMDIR, RENAME, SETATTR):
            status[i] = _change(s, i, ops, attributes, text, offsets, hashes, cpus, acc)
        else:
            child = _find(s, directory, hashes[ops[i, 2]])
            if not child:
                status[i] = ENOENT
            elif kind != 0:
                _stat(s, child, acc)
        ends[i - first] = acc[0, 0]
    return last
