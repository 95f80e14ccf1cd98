"""ext4: 4 KiB blocks in block groups, directories as hashed trees of blocks, a journal, and the host's page cache in front of everything.

Inodes of 256 B fill the tables of their block group. A file goes to the group of its directory, a directory to the group of its parent,
and top-level directories are spread over the groups with the most room (Orlov). A directory is one block of entries; when it is full, its
blocks become leaves under an index of hashes, and a full leaf splits at the median hash. A change dirties the directory's block and its
inode's block, the inode bitmap, the group descriptor and the inode's block. Every 32 operations or every millisecond, the journal's
thread writes each dirty block once more and then a commit block. Blocks go home when the journal is half full or when the page must leave
the cache. All device traffic is in whole blocks.

Mathur et al., The new ext4 filesystem: current status and future plans, Linux Symposium 2007. The index has one level here, for some
20,000 files per directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.kernels import kernel, part
from armillary.parameters import parameter

from .simulation.accesses import FENCE, READ, WRITE, emit
from .simulation.engine import EEXIST, ENOENT, ENOTEMPTY, OK, Batch, Engine, MetadataEngine, access_list
from .workload import CHANGES, CREATE, LOOKUP, MKDIR, READDIR, READDIRPLUS, RENAME, SETATTR

if TYPE_CHECKING:
    from .workload import Work

BLOCK, INODE = 4096, 256
INODES_A_GROUP = 8192
TABLE_BLOCKS = INODES_A_GROUP * INODE // BLOCK
#: Blocks for directories in a group.
DIRECTORY_BLOCKS = 1536
GROUP_BLOCKS = 2 + TABLE_BLOCKS + DIRECTORY_BLOCKS
JOURNAL_BLOCKS = 1024
INDEX_ENTRIES = 500
#: Columns of `frames`: block, newer, older, state bits.
IN_TRANSACTION, UNWRITTEN = 1, 2
#: Numbers: groups, first group's block, frames used, newest, oldest, blocks in the transaction, journal position, operations since it
#: began, pending blocks, changes in it, overflow.
GROUPS, BASE, CACHED, NEWEST, OLDEST, DIRTY, JOURNAL_AT, SINCE, PENDING, CHANGED, TOO_LARGE, COMMITS = range(12)


class _Ext4(NamedTuple):
    b: np.ndarray
    w: np.ndarray
    h: np.ndarray
    #: The inode number of each object; a directory's blocks and children in host memory are only counts.
    inode: np.ndarray
    children: np.ndarray
    #: Free inodes, directories, next free inode and next free block of each group: what descriptors and bitmaps say.
    groups: np.ndarray
    frame_of: np.ndarray
    block_of: np.ndarray
    newer: np.ndarray
    older: np.ndarray
    state: np.ndarray
    dirty: np.ndarray
    m: np.ndarray


@dataclass(frozen=True)
class Ext4(MetadataEngine):
    """ext4 (Linux Symposium 2007) on a block device over the CXL module."""

    page_cache: float = parameter(0.5, "host page cache as a share of the device's cache (32 of 64 MiB)", range=(0.01, 64))
    software_us: float = parameter(4.5, "microseconds of software time per operation", range=(0, 100))
    commit_lock_us: float = parameter(0.8, "microseconds that a change holds the journal's lock", range=(0, 100))
    group_commit: int = parameter(32, "most changes in one commit", range=(1, 10000))
    commit_ms: float = parameter(1.0, "milliseconds after which a commit is written at the latest", range=(0.01, 10000))

    def start(self, work: Work, cache_bytes: int, *, granule: int = 4096) -> Ext4Engine:
        """Makes a formatted, empty file system for this work."""
        return Ext4Engine(work, self, cache_bytes)


class Ext4Engine(Engine):
    """The file system of one piece of work."""

    def __init__(self, work: Work, how: Ext4, cache_bytes: int) -> None:
        super().__init__(work)
        self.how = how
        n = work.objects + 1
        groups = max(4, -(-2 * n // INODES_A_GROUP), -(-(3 * n // 40 + 3 * len(work.directories)) // DIRECTORY_BLOCKS) + 1)
        descriptor_blocks = -(-groups * 64 // BLOCK)
        base = 1 + descriptor_blocks + JOURNAL_BLOCKS
        blocks = base + groups * GROUP_BLOCKS
        frames = max(16, int(how.page_cache * cache_bytes) // BLOCK)
        self.space = np.zeros(blocks * BLOCK, np.uint8)
        table = np.zeros((groups, 4), np.int64)
        table[:, 0] = INODES_A_GROUP
        m = np.zeros(12, np.int64)
        m[GROUPS], m[BASE], m[NEWEST], m[OLDEST] = groups, base, -1, -1
        self.state = _Ext4(
            self.space, self.space.view(np.uint64), self.space.view(np.uint32), np.zeros(n, np.int64), np.zeros(n, np.int64), table,
            np.zeros(blocks, np.int32), np.zeros(frames, np.int64), np.full(frames, -1, np.int32), np.full(frames, -1, np.int32),
            np.zeros(frames, np.uint8), np.zeros(4096, np.int64), m,
        )  # fmt: skip
        self._accesses = access_list()
        self._background = access_list()
        self._splits = np.zeros((2, 1024), np.int64)
        _make_inode(self.state, 1, 0, True, 0o40755, 0, 0, self._accesses)

    def step(self, first: int, last: int) -> tuple[int, np.ndarray, Batch]:
        """Does operations [first, last) or fewer; the journal's commits are background jobs between them."""
        work, acc, back = self.work, self._accesses, self._background
        acc[0, 0] = back[0, 0] = 0
        n = last - first
        ends, commits = np.zeros(n, np.int64), np.zeros(n, np.int64)
        per_commit = max(1.0, self.pace * 1000 * self.how.commit_ms) if self.pace else 1e9
        reached = _run(self.state, work.ops, work.attributes, work.text, work.offsets, work.hashes, first, last, self.how.group_commit,
                       per_commit, acc, back, ends, commits, self.status, self._splits)  # fmt: skip
        if self.state.m[TOO_LARGE]:
            raise NotForThisCase("a directory is too large for an index of one level")
        if reached == first:
            raise InputError("the file system is full")
        n = reached - first
        ends, commits = ends[:n], commits[:n]
        changes = np.isin(work.ops[first:reached, 0], CHANGES)
        starts = np.concatenate([[0], ends[:-1]])
        split = int(acc[0, 0])
        closing = np.flatnonzero(commits)
        commit_last = commits[closing]
        commit_first = np.concatenate([[0], commit_last[:-1]]) if len(closing) else commit_last
        # A commit comes before the operation that follows the one that closed it.
        order = np.argsort(np.concatenate([np.arange(n) * 2.0, closing * 2.0 + 1.0]), kind="stable")
        k = len(closing)

        def joined(one: np.ndarray, two: np.ndarray) -> np.ndarray:
            return np.concatenate([one, two])[order]

        batch = Batch(
            joined(starts, split + commit_first), joined(ends, split + commit_last), joined(first + np.arange(n), np.full(k, -1)),
            np.full(n + k, -1), np.full(n + k, -1), joined(np.full(n, self.how.software_us), np.zeros(k)),
            joined(np.where(changes, self.how.commit_lock_us, 0.0), np.zeros(k)),
        )  # fmt: skip
        rows = np.concatenate([acc[1 : 1 + split], back[1 : 1 + back[0, 0]]])
        return reached, rows, batch

    def tree(self) -> dict[tuple[int, bytes], tuple[int, int, int]]:
        """Returns (directory, name) → (id, mode, size), from inodes and directory blocks."""
        found = {}
        todo = [(1, int(self.state.inode[1]))]
        while todo:
            directory, inode = todo.pop()
            at = int(_inode_at(self.state, inode))
            first = int(self.state.w[at // 8 + 4])
            if not first:
                continue
            leaves = [first]
            if self.state.h[first * BLOCK // 4] == 0xFFFFFFFF:
                count = int(self.state.h[first * BLOCK // 4 + 1])
                leaves = [int(self.state.h[first * BLOCK // 4 + 2 + 2 * i + 1]) for i in range(count)]
            for leaf in leaves:
                p = leaf * BLOCK + 8
                while p < leaf * BLOCK + BLOCK and self.space[p + 5]:
                    length, child = int(self.space[p + 4]), int(self.state.h[p // 4])
                    c = int(_inode_at(self.state, child)) // 8
                    number = int(self.state.w[c])
                    found[directory, self.space[p + 12 : p + 12 + length].tobytes()] = (
                        number,
                        int(self.state.w[c + 1]),
                        int(self.state.w[c + 2]),
                    )
                    if self.state.w[c + 5]:
                        todo.append((number, child))
                    p += int(self.space[p + 5]) * 4
        return found


@part
def _group_block(s, group):
    return s.m[BASE] + group * GROUP_BLOCKS


@part
def _inode_at(s, inode):
    group, i = inode // INODES_A_GROUP, inode % INODES_A_GROUP
    return (_group_block(s, group) + 2) * BLOCK + i * INODE


@kernel
def _page(s, block, change, acc):
    """Makes a block the most recent one of the page cache, reads it if it is missing, and notes a change for the journal."""
    f = s.frame_of[block] - 1
    if f < 0:
        if s.m[CACHED] < len(s.block_of):
            f = s.m[CACHED]
            s.m[CACHED] += 1
        else:
            f = s.m[OLDEST]
            # Pages of the running transaction stay; one that was committed and not yet written home goes there now.
            tries = 0
            while s.state[f] & IN_TRANSACTION and tries < 512 and s.newer[f] >= 0:
                f = s.newer[f]
                tries += 1
            if s.state[f] & UNWRITTEN:
                emit(acc, s.block_of[f] * BLOCK, BLOCK, WRITE)
                s.m[PENDING] -= 1
            s.frame_of[s.block_of[f]] = 0
            _take(s, f)
        s.state[f] = 0
        s.block_of[f] = block
        s.frame_of[block] = f + 1
        emit(acc, block * BLOCK, BLOCK, READ)
        _newest(s, f)
    elif s.m[NEWEST] != f:
        _take(s, f)
        _newest(s, f)
    if change and not s.state[f] & IN_TRANSACTION:
        s.state[f] |= IN_TRANSACTION
        s.dirty[s.m[DIRTY]] = block
        s.m[DIRTY] += 1


@part
def _take(s, f):
    newer, older = s.newer[f], s.older[f]
    if newer >= 0:
        s.older[newer] = older
    else:
        s.m[NEWEST] = older
    if older >= 0:
        s.newer[older] = newer
    else:
        s.m[OLDEST] = newer


@part
def _newest(s, f):
    s.newer[f] = -1
    s.older[f] = s.m[NEWEST]
    if s.m[NEWEST] >= 0:
        s.newer[s.m[NEWEST]] = f
    s.m[NEWEST] = f
    if s.m[OLDEST] < 0:
        s.m[OLDEST] = f


@kernel
def _commit(s, acc):
    """Writes a descriptor, every changed block and a commit block to the journal, and blocks home if the journal is half full."""
    journal = s.m[BASE] - JOURNAL_BLOCKS
    emit(acc, (journal + s.m[JOURNAL_AT] % JOURNAL_BLOCKS) * BLOCK, BLOCK, WRITE)
    s.m[JOURNAL_AT] += 1
    for i in range(s.m[DIRTY]):
        block = s.dirty[i]
        to = (journal + s.m[JOURNAL_AT] % JOURNAL_BLOCKS) * BLOCK
        for j in range(BLOCK // 8):
            s.w[to // 8 + j] = s.w[block * (BLOCK // 8) + j]
        emit(acc, to, BLOCK, WRITE)
        s.m[JOURNAL_AT] += 1
        f = s.frame_of[block] - 1
        if f >= 0:
            if not s.state[f] & UNWRITTEN:
                s.m[PENDING] += 1
            s.state[f] = UNWRITTEN
    emit(acc, (journal + s.m[JOURNAL_AT] % JOURNAL_BLOCKS) * BLOCK, BLOCK, WRITE | FENCE)
    s.m[JOURNAL_AT] += 1
    s.m[DIRTY], s.m[SINCE], s.m[CHANGED] = 0, 0, 0
    s.m[COMMITS] += 1
    if s.m[PENDING] * 2 > JOURNAL_BLOCKS or s.m[PENDING] * 2 > len(s.block_of) or s.m[JOURNAL_AT] > JOURNAL_BLOCKS // 2:
        for f in range(s.m[CACHED]):
            if s.state[f] & UNWRITTEN:
                emit(acc, s.block_of[f] * BLOCK, BLOCK, WRITE)
                s.state[f] = 0
        s.m[PENDING] = 0
        s.m[JOURNAL_AT] = 0


@kernel
def _make_inode(s, number, group, directory, mode, size, mtime, acc):
    """Takes an inode in this group, or in the next one with room."""
    while s.groups[group, 0] == 0:
        group = (group + 1) % s.m[GROUPS]
    i = s.groups[group, 2]
    bitmap = _group_block(s, group) + 1
    while s.b[bitmap * BLOCK + i // 8] & np.uint8(1 << (i % 8)):
        i = (i + 1) % INODES_A_GROUP
    s.b[bitmap * BLOCK + i // 8] |= np.uint8(1 << (i % 8))
    s.groups[group, 2] = i
    s.groups[group, 0] -= 1
    s.groups[group, 1] += 1 if directory else 0
    inode = group * INODES_A_GROUP + i
    _page(s, bitmap, True, acc)
    _page(s, 1 + group * 64 // BLOCK, True, acc)
    s.w[(BLOCK + group * 64) // 8] = np.uint64(s.groups[group, 0])
    at = _inode_at(s, inode)
    _page(s, at // BLOCK, True, acc)
    w = at // 8
    s.w[w], s.w[w + 1], s.w[w + 2], s.w[w + 3] = np.uint64(number), np.uint64(mode), np.uint64(size), np.uint64(mtime)
    s.w[w + 4], s.w[w + 5] = np.uint64(0), np.uint64(1 if directory else 0)
    s.inode[number] = inode
    s.children[number] = 0


@kernel
def _drop_inode(s, number, acc):
    inode = s.inode[number]
    group, i = inode // INODES_A_GROUP, inode % INODES_A_GROUP
    bitmap = _group_block(s, group) + 1
    s.b[bitmap * BLOCK + i // 8] &= ~np.uint8(1 << (i % 8))
    s.groups[group, 0] += 1
    s.groups[group, 2] = min(s.groups[group, 2], i)
    _page(s, bitmap, True, acc)
    _page(s, 1 + group * 64 // BLOCK, True, acc)
    at = _inode_at(s, inode)
    _page(s, at // BLOCK, True, acc)
    s.w[at // 8] = np.uint64(0)


@kernel
def _new_block(s, group, acc):
    """Takes a directory block in this group, or in the next one with room."""
    while s.groups[group, 3] == DIRECTORY_BLOCKS:
        group = (group + 1) % s.m[GROUPS]
    bitmap = _group_block(s, group)
    i = s.groups[group, 3]
    s.groups[group, 3] += 1
    s.b[bitmap * BLOCK + i // 8] |= np.uint8(1 << (i % 8))
    _page(s, bitmap, True, acc)
    block = bitmap + 2 + TABLE_BLOCKS + i
    for j in range(block * BLOCK // 8, (block + 1) * BLOCK // 8):
        s.w[j] = np.uint64(0)
    return block


# A leaf: u32 bytes used, u32 0, then entries: inode u32, name length u8, size in words u8, 0 u16, name hash (upper half) u32, name.
# An index: 0xFFFFFFFF, entries, then (first hash, block) u32 pairs by hash. No entry is ever empty: those behind one that goes move up.


@part
def _entry_size(length):
    return (12 + length + 3) // 4 * 4


@kernel
def _leaf(s, directory, name, acc):
    """Returns (leaf block, place in the index or -1) for a name."""
    at = _inode_at(s, s.inode[directory])
    first = np.int64(s.w[at // 8 + 4])
    if first == 0:
        return np.int64(0), -1
    h = first * (BLOCK // 4)
    if s.h[h] != np.uint32(0xFFFFFFFF):
        return first, -1
    _page(s, first, False, acc)
    key = np.uint32(name >> np.uint64(32))
    low, high = 0, np.int64(s.h[h + 1]) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if s.h[h + 2 + 2 * middle] <= key:
            low = middle
        else:
            high = middle - 1
    return np.int64(s.h[h + 3 + 2 * low]), low


@kernel
def _search(s, leaf, name, text, start, length):
    """Returns the entry's offset in a leaf, or 0."""
    p = leaf * BLOCK + 8
    end = p + np.int64(s.h[leaf * (BLOCK // 4)])
    key = np.uint32(name >> np.uint64(32))
    while p < end:
        if s.h[p // 4 + 2] == key and s.b[p + 4] == length:
            same = True
            for i in range(length):
                if s.b[p + 12 + i] != text[start + i]:
                    same = False
                    break
            if same:
                return p
        p += np.int64(s.b[p + 5]) * 4
    return 0


@kernel
def _find(s, directory, name, text, start, length, acc):
    """Returns (entry offset or 0, leaf)."""
    at = _inode_at(s, s.inode[directory])
    _page(s, at // BLOCK, False, acc)
    leaf, _ = _leaf(s, directory, name, acc)
    if leaf == 0:
        return np.int64(0), leaf
    _page(s, leaf, False, acc)
    return np.int64(_search(s, leaf, name, text, start, length)), leaf


@kernel
def _add(s, directory, inode, name, text, start, length, acc, splits):
    """Adds an entry; a full leaf splits at its median hash."""
    at = _inode_at(s, s.inode[directory])
    _page(s, at // BLOCK, True, acc)
    group = s.inode[directory] // INODES_A_GROUP
    size = _entry_size(length)
    if s.w[at // 8 + 4] == np.uint64(0):
        s.w[at // 8 + 4] = np.uint64(_new_block(s, group, acc))
    while True:
        leaf, place = _leaf(s, directory, name, acc)
        used = np.int64(s.h[leaf * (BLOCK // 4)])
        if 8 + used + size <= BLOCK:
            break
        if place < 0:
            root = _new_block(s, group, acc)
            s.h[root * (BLOCK // 4)] = np.uint32(0xFFFFFFFF)
            s.h[root * (BLOCK // 4) + 1] = np.uint32(1)
            s.h[root * (BLOCK // 4) + 3] = np.uint32(leaf)
            s.w[at // 8 + 4] = np.uint64(root)
            place = 0
        root = np.int64(s.w[at // 8 + 4])
        h = root * (BLOCK // 4)
        entries = np.int64(s.h[h + 1])
        if entries >= INDEX_ENTRIES:
            s.m[TOO_LARGE] = 1
            return
        n = 0
        p = leaf * BLOCK + 8
        while p < leaf * BLOCK + 8 + used:
            splits[0, n] = np.int64(s.h[p // 4 + 2])
            n += 1
            p += np.int64(s.b[p + 5]) * 4
        for i in range(1, n):
            key, j = splits[0, i], i
            while j > 0 and splits[0, j - 1] > key:
                splits[0, j] = splits[0, j - 1]
                j -= 1
            splits[0, j] = key
        middle = n // 2
        while middle < n - 1 and splits[0, middle] == splits[0, 0]:
            middle += 1
        median = splits[0, middle]
        fresh = _new_block(s, group, acc)
        p, to, stay = leaf * BLOCK + 8, fresh * BLOCK + 8, leaf * BLOCK + 8
        end = p + used
        while p < end:
            words = np.int64(s.b[p + 5])
            if np.int64(s.h[p // 4 + 2]) >= median:
                for i in range(words):
                    s.h[to // 4 + i] = s.h[p // 4 + i]
                to += 4 * words
            else:
                for i in range(words):
                    s.h[stay // 4 + i] = s.h[p // 4 + i]
                stay += 4 * words
            p += 4 * words
        for i in range(stay, end):
            s.b[i] = 0
        s.h[leaf * (BLOCK // 4)] = np.uint32(stay - leaf * BLOCK - 8)
        s.h[fresh * (BLOCK // 4)] = np.uint32(to - fresh * BLOCK - 8)
        for i in range(entries, place + 1, -1):
            s.h[h + 2 + 2 * i], s.h[h + 3 + 2 * i] = s.h[h + 2 * i], s.h[h + 1 + 2 * i]
        s.h[h + 4 + 2 * place], s.h[h + 5 + 2 * place] = np.uint32(median), np.uint32(fresh)
        s.h[h + 1] = np.uint32(entries + 1)
        _page(s, leaf, True, acc)
        _page(s, fresh, True, acc)
        _page(s, root, True, acc)
    _page(s, leaf, True, acc)
    p = leaf * BLOCK + 8 + used
    s.h[p // 4], s.h[p // 4 + 1], s.h[p // 4 + 2] = (
        np.uint32(inode),
        np.uint32(length | ((size // 4) << 8)),
        np.uint32(name >> np.uint64(32)),
    )
    for i in range(length):
        s.b[p + 12 + i] = text[start + i]
    s.h[leaf * (BLOCK // 4)] = np.uint32(used + size)
    s.children[directory] += 1


@kernel
def _remove(s, directory, entry, leaf, acc):
    size = np.int64(s.b[entry + 5]) * 4
    end = leaf * BLOCK + 8 + np.int64(s.h[leaf * (BLOCK // 4)])
    for i in range(entry, end - size):
        s.b[i] = s.b[i + size]
    for i in range(end - size, end):
        s.b[i] = 0
    s.h[leaf * (BLOCK // 4)] -= np.uint32(size)
    _page(s, leaf, True, acc)
    _page(s, _inode_at(s, s.inode[directory]) // BLOCK, True, acc)
    s.children[directory] -= 1


@kernel
def _orlov(s, parent):
    """Returns a new directory's group: that with the fewest directories among groups with room for top-level ones, else its parent's."""
    home = s.inode[parent] // INODES_A_GROUP
    if parent != 1:
        return home
    best = -1
    total = np.int64(0)
    for g in range(s.m[GROUPS]):
        total += s.groups[g, 0]
    for g in range(s.m[GROUPS]):
        if s.groups[g, 0] * s.m[GROUPS] >= total and (best < 0 or s.groups[g, 1] < s.groups[best, 1]):
            best = g
    return max(best, 0)


@kernel
def _list(s, directory, plus, acc):
    at = _inode_at(s, s.inode[directory])
    _page(s, at // BLOCK, False, acc)
    first = np.int64(s.w[at // 8 + 4])
    if first == 0:
        return
    h = first * (BLOCK // 4)
    leaves = 1
    indexed = s.h[h] == np.uint32(0xFFFFFFFF)
    if indexed:
        _page(s, first, False, acc)
        leaves = np.int64(s.h[h + 1])
    for j in range(leaves):
        leaf = np.int64(s.h[h + 3 + 2 * j]) if indexed else first
        _page(s, leaf, False, acc)
        if plus:
            p = leaf * BLOCK + 8
            end = p + np.int64(s.h[leaf * (BLOCK // 4)])
            while p < end:
                _page(s, _inode_at(s, np.int64(s.h[p // 4])) // BLOCK, False, acc)
                p += np.int64(s.b[p + 5]) * 4


@kernel
def _operation(s, i, ops, attributes, text, offsets, hashes, acc, splits):
    kind, directory, number = ops[i, 0], ops[i, 1], ops[i, 3]
    start, length = offsets[ops[i, 2]], offsets[ops[i, 2] + 1] - offsets[ops[i, 2]]
    name, row = hashes[ops[i, 2]], ops[i, 7]
    if kind in (READDIR, READDIRPLUS):
        _list(s, directory, kind == READDIRPLUS, acc)
        return OK
    entry, leaf = _find(s, directory, name, text, start, length, acc)
    if kind in (CREATE, MKDIR):
        if entry:
            return EEXIST
        group = _orlov(s, directory) if kind == MKDIR else s.inode[directory] // INODES_A_GROUP
        _make_inode(s, number, group, kind == MKDIR, attributes[row, 0], attributes[row, 3], attributes[row, 5], acc)
        _add(s, directory, s.inode[number], name, text, start, length, acc, splits)
        return OK
    if entry == 0:
        return ENOENT
    inode = np.int64(s.h[entry // 4])
    at = _inode_at(s, inode)
    child = np.int64(s.w[at // 8])
    if kind == LOOKUP:
        return OK
    if kind == SETATTR:
        _page(s, at // BLOCK, True, acc)
        s.w[at // 8 + 1], s.w[at // 8 + 2] = np.uint64(attributes[row, 0]), np.uint64(attributes[row, 3])
        return OK
    if kind == RENAME:
        to, second = ops[i, 4], ops[i, 5]
        start2 = offsets[second]
        length2 = offsets[second + 1] - start2
        other, leaf2 = _find(s, to, hashes[second], text, start2, length2, acc)
        if other:
            replaced = np.int64(s.w[_inode_at(s, np.int64(s.h[other // 4])) // 8])
            if replaced == child:
                return OK
            if s.children[replaced]:
                return ENOTEMPTY
            _remove(s, to, other, leaf2, acc)
            _drop_inode(s, replaced, acc)
            entry, leaf = _find(s, directory, name, text, start, length, acc)
        _remove(s, directory, entry, leaf, acc)
        _add(s, to, inode, hashes[second], text, start2, length2, acc, splits)
        return OK
    if kind < CREATE:
        _page(s, at // BLOCK, False, acc)
        return OK
    if s.children[child]:
        return ENOTEMPTY
    _remove(s, directory, entry, leaf, acc)
    _drop_inode(s, child, acc)
    return OK


@kernel
def _run(s, ops, attributes, text, offsets, hashes, first, last, most, per_commit, acc, back, ends, commits, status, splits):
    for i in range(first, last):
        kind = ops[i, 0]
        if acc[0, 0] + 4096 + 2 * s.children[ops[i, 1]] > len(acc) or back[0, 0] + 2 * len(s.block_of) + 4096 > len(back):
            return i
        status[i] = _operation(s, i, ops, attributes, text, offsets, hashes, acc, splits)
        if s.m[TOO_LARGE]:
            return i
        if s.m[DIRTY]:
            s.m[SINCE] += 1
            if kind >= CREATE and kind != READDIR and kind != READDIRPLUS:
                s.m[CHANGED] += 1
            if s.m[CHANGED] >= most or s.m[SINCE] >= per_commit:
                _commit(s, back)
                commits[i - first] = back[0, 0]
        ends[i - first] = acc[0, 0]
    return last
