"""Operations on a tree of files, as arrays, which every engine gets.

An operation names its directory by number and its object by name, as a client does that has resolved and cached the directories of its
path. `ops` is int64[n, 8]:

    kind, directory, name, object, second directory, second name, client, row of `attributes`

Names are numbers in a table of bytes. The first `loaded` operations build the tree and are not timed. Directory 1 is the root, which
always exists.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from armillary import workloads
from armillary.errors import InputError, unknown
from armillary.kernels import loop

LOOKUP, STAT, OPEN, CREATE, MKDIR, UNLINK, RMDIR, READDIR, READDIRPLUS, RENAME, SETATTR = range(11)
KINDS = ("lookup", "stat", "open", "create", "mkdir", "unlink", "rmdir", "readdir", "readdirplus", "rename", "setattr")
CHANGES = (CREATE, MKDIR, UNLINK, RMDIR, RENAME, SETATTR)
KIND, DIR, NAME, OBJECT, DIR2, NAME2, CLIENT, ATTRIBUTES = range(8)
CLIENTS = 24 * 16
ROOT = 1
#: Columns of `attributes`.
MODE, UID, GID, SIZE, ATIME, MTIME, CTIME = range(7)
NAMES = ("mdtest", "loader", "checkpoint", "mixed")
#: Of `mixed`: stat, open, readdirplus, create, unlink, rename, setattr.
SHARES = (0.55, 0.20, 0.10, 0.08, 0.05, 0.01, 0.01)
MIXED_KINDS = (STAT, OPEN, READDIRPLUS, CREATE, UNLINK, RENAME, SETATTR)


@dataclass(frozen=True)
class Work:
    """Operations, the names and attributes that they carry, and how many clients send them."""

    ops: np.ndarray
    text: np.ndarray
    offsets: np.ndarray
    attributes: np.ndarray
    loaded: int
    clients: int = CLIENTS
    #: Operations on missing paths that were left out.
    missing: int = 0
    label: str = field(default="", compare=False)

    @cached_property
    def hashes(self) -> np.ndarray:
        """uint64: the hash of each name, under the key 0, so that simulated values can be repeated."""
        from .record_groups.records import hash_names

        out = np.zeros(len(self.offsets) - 1, np.uint64)
        hash_names(self.text, self.offsets, 0, 0, out)
        return out

    @cached_property
    def directories(self) -> np.ndarray:
        """Objects that are directories at some time, the root first."""
        made = self.ops[self.ops[:, KIND] == MKDIR, OBJECT]
        return np.concatenate([[ROOT], made])

    @cached_property
    def directory_rows(self) -> np.ndarray:
        """int64 per object: its place in `directories`, 0 for files."""
        rows = np.zeros(self.objects, np.int64)
        rows[self.directories] = np.arange(len(self.directories))
        return rows

    @cached_property
    def objects(self) -> int:
        """One more than the largest object number."""
        return int(max(ROOT, self.ops[:, OBJECT].max(initial=0))) + 1

    @cached_property
    def creates(self) -> int:
        """Operations that bring an object into the tree, renames included."""
        return int(np.isin(self.ops[:, KIND], (CREATE, MKDIR, RENAME)).sum())

    @cached_property
    def files(self) -> int:
        """Objects of the tree before the timed part, or made in it if it starts empty: what caches are sized by."""
        made = np.isin(self.ops[:, KIND], (CREATE, MKDIR))
        return int(made[: self.loaded].sum() if self.loaded else made.sum()) or int(made.sum())

    @cached_property
    def bytes_changed(self) -> int:
        """Bytes that the timed operations' callers change: names and 64 B of attributes."""
        timed = self.ops[self.loaded :]
        lengths = np.diff(self.offsets)
        first, second = lengths[timed[:, NAME]], lengths[timed[:, NAME2]]
        kind = timed[:, KIND]
        new = np.isin(kind, (CREATE, MKDIR))
        gone = np.isin(kind, (UNLINK, RMDIR))
        return int(
            (first + 64)[new].sum() + (first + 8)[gone].sum() + (first + second)[kind == RENAME].sum() + 64 * (kind == SETATTR).sum()
        )

    def name(self, number: int) -> bytes:
        """Returns a name's bytes."""
        return self.text[self.offsets[number] : self.offsets[number + 1]].tobytes()


class WorkBuilder:
    """Collects operations one by one, for files, tests and small work."""

    def __init__(self, clients: int = CLIENTS) -> None:
        self.clients = clients
        #: Eight numbers for each operation.
        self._ops = array("q")
        self._names: dict[bytes, int] = {b"": 0}
        self._attributes: list[tuple[int, ...]] = [(0o644, 0, 0, 0, 0, 0, 0)]
        self._tree: dict[tuple[int, bytes], int] = {}
        self._kinds: dict[int, int] = {ROOT: MKDIR}
        self._children: dict[int, int] = {ROOT: 0}
        self._next = ROOT + 1
        self.loaded = 0
        self.missing = 0

    def find(self, directory: int, name: bytes) -> int | None:
        """Returns the object of this name, or None."""
        return self._tree.get((directory, name))

    def is_directory(self, number: int) -> bool:
        """Returns whether the object is a directory."""
        return self._kinds.get(number) == MKDIR

    def children(self, directory: int) -> int:
        """Returns how many children the directory has."""
        return self._children[directory]

    def add(self, kind: int, directory: int, name: bytes = b"", *, to: tuple[int, bytes] | None = None, client: int = 0,
            mode: int = 0o644, size: int = 0, mtime: int = 0, uid: int = 0, gid: int = 0) -> int:  # fmt: skip
        """Adds an operation that must be possible; returns its object (0: the directory itself)."""
        check_name(name, empty=kind in (READDIR, READDIRPLUS))
        key = (directory, name)
        number = 0
        second, name2 = (0, b"") if to is None else to
        if kind in (CREATE, MKDIR):
            number, self._next = self._next, self._next + 1
            self._tree[key] = number
            self._kinds[number] = kind
            self._children[directory] += 1
            if kind == MKDIR:
                self._children[number] = 0
        elif name:
            number = self._tree[key]
            if kind in (UNLINK, RMDIR):
                del self._tree[key]
                self._children[directory] -= 1
            elif kind == RENAME:
                check_name(name2)
                if (second, name2) in self._tree and (second, name2) != key:
                    self._children[second] -= 1
                del self._tree[key]
                self._tree[second, name2] = number
                self._children[directory] -= 1
                self._children[second] += 1
        row = 0
        if kind in (CREATE, MKDIR, SETATTR):
            row = len(self._attributes)
            self._attributes.append((mode, uid, gid, size, mtime, mtime, mtime))
        self._ops.extend((kind, directory, self._number(name), number, second, self._number(name2), client % self.clients, row))
        return number

    def __len__(self) -> int:
        """Returns the number of operations so far."""
        return len(self._ops) // 8

    def load_ends(self) -> None:
        """Ends the part that builds the tree; what follows is timed."""
        self.loaded = len(self)

    def expected(self) -> dict[tuple[int, bytes], int]:
        """Returns (directory, name) → object after all operations."""
        return dict(self._tree)

    def build(self, label: str = "") -> Work:
        """Returns the work."""
        if not self._ops:
            raise InputError("found no operations; expected at least one", where=label or None)
        names = list(self._names)
        text = np.frombuffer(bytearray(b"".join(names) + b"\0"), np.uint8)
        offsets = np.cumsum([0, *map(len, names)])
        ops = np.array(self._ops, np.int64).reshape(-1, 8)
        return Work(ops, text, offsets, np.array(self._attributes, np.int64), self.loaded, self.clients, self.missing, label)

    def _number(self, name: bytes) -> int:
        return self._names.setdefault(name, len(self._names))


def check_name(name: bytes, *, empty: bool = False, where: str | None = None) -> None:
    """Raises InputError unless `name` is 1 to 255 bytes without "/" and NUL."""
    if (not name and not empty) or len(name) > 255:
        raise InputError(f"name of {len(name)} bytes; expected 1 to 255", where=where)
    if b"/" in name or b"\0" in name or name in (b".", b".."):
        raise InputError(f'name "{name[:60].decode(errors="replace")}"; expected no "/" and no NUL, and neither "." nor ".."', where=where)


def numbered_names(count: int, stem: bytes = b"file.") -> tuple[np.ndarray, np.ndarray]:
    """Returns (text, offsets) of "", and of `stem` and eight digits for each number below `count`."""
    digits = (np.arange(count)[:, None] // 10 ** np.arange(7, -1, -1)[None, :]) % 10 + 48
    table = np.empty((count, len(stem) + 8), np.uint8)
    table[:, : len(stem)] = np.frombuffer(stem, np.uint8)
    table[:, len(stem) :] = digits
    return np.append(table.reshape(-1), np.uint8(0)), np.concatenate([[0], np.arange(count + 1) * (len(stem) + 8)])


def generate(name: str, rng: np.random.Generator, files: int, ops: int, **shape: int) -> Work:
    """Draws a built-in piece of work of about `files` files and `ops` timed operations; `shape` goes to the work's own function."""
    makers = {"mdtest": mdtest, "loader": loader, "checkpoint": checkpoint, "mixed": mixed}
    if name not in makers:
        raise unknown("work", name, makers)
    return makers[name](rng, files, ops, **shape)  # type: ignore[operator]


def mdtest(rng: np.random.Generator, files: int, ops: int = 0, *, depth: int = 4, branch: int = 8) -> Work:
    """Draws mdtest's work, which creates, stats, lists and unlinks `files` files spread over a tree (`branch`, `depth`).

    As with `mdtest -z depth -b branch -I files/directories`, each client creates files in the directories in turn, and stats another
    client's files. `ops` is not used, because there are four phases over all files.
    """
    if not 1 <= branch <= 1000 or not 0 <= depth <= 20 or branch**depth > 10_000_000:
        raise InputError(f"depth {depth}, branch {branch}: expected at most ten million directories")
    parents = [np.array([ROOT])]
    made = [np.zeros(0, np.int64)]
    next_id = ROOT + 1
    dir_rows = []
    for _ in range(depth):
        if len(parents[-1]) * branch > max(16, files // 4):
            break
        up = np.repeat(parents[-1], branch)
        numbers = next_id + np.arange(len(up))
        next_id += len(up)
        dir_rows.append(_rows(MKDIR, up, numbers, numbers))
        parents.append(numbers)
        made.append(numbers)
    directories = np.concatenate(made) if next_id > 2 else np.array([ROOT])
    leaves = directories
    # Client c works on its own slice of directories' files, so that neighbours in time are in different directories.
    home = leaves[np.arange(files) % len(leaves)]
    numbers = next_id + np.arange(files)
    create = _rows(CREATE, home, numbers, numbers)
    shift = rng.permutation(files)
    stat = _rows(STAT, home[shift], numbers[shift], numbers[shift])
    listing = _rows(READDIRPLUS, leaves, np.zeros(len(leaves), np.int64), np.zeros(len(leaves), np.int64))
    order = rng.permutation(files)
    unlink = _rows(UNLINK, home[order], numbers[order], numbers[order])
    load = np.concatenate(dir_rows) if dir_rows else np.zeros((0, 8), np.int64)
    return _work([load, create, stat, listing, unlink], len(load), next_id + files, rng, b"file.mdtest.")


def loader(rng: np.random.Generator, files: int, ops: int, *, most: int = 1281) -> Work:
    """Draws the work of an image loader, which lists directories of up to `most` files and then opens files in shuffled epochs."""
    per = min(most, max(20, files // 50))
    count = max(1, files // per)
    directories = ROOT + 1 + np.arange(count)
    numbers = ROOT + 1 + count + np.arange(count * per)
    home = np.repeat(directories, per)
    # The tree was unpacked by several writers: neighbours in time come from 16 directories.
    stripes = np.argsort(np.tile(np.arange(per), count) + (np.repeat(np.arange(count), per) // 16) * per, kind="stable")
    load = np.concatenate([_rows(MKDIR, np.full(count, ROOT), directories, directories),
                           _rows(CREATE, home[stripes], numbers[stripes], numbers[stripes])])  # fmt: skip
    zeros = np.zeros(count, np.int64)
    parts = [_rows(READDIRPLUS, directories, zeros, zeros)]
    left = ops - count
    while left > 0:
        order = rng.permutation(len(numbers))[:left]
        parts.append(_rows(OPEN, home[order], numbers[order], numbers[order]))
        left -= len(order)
    return _work([load, *parts], len(load), int(numbers[-1]) + 1, rng, b"n0144076_img")


def checkpoint(rng: np.random.Generator, files: int, ops: int) -> Work:
    """Draws checkpoints, for which 64 writers create 200 files each under temporary names and rename them; older trees exist."""
    writers, each = 64, 200
    rounds = max(1, ops // (2 * writers * each))
    if ops < 2 * writers * each:
        each = max(1, ops // (2 * writers))
    base = mixed(rng, files, 0)
    first = base.objects
    directories = first + np.arange(4 * rounds)
    number = first + 4 * rounds
    parts = [_rows(MKDIR, np.full(len(directories), ROOT), directories, directories)]
    for r in range(rounds):
        n = writers * each
        ids = number + np.arange(n)
        number += n
        home = directories[4 * r + (np.arange(n) % writers) % 4]
        parts.append(_rows(CREATE, home, ids, ids))
        final = _rows(RENAME, home, ids, ids)
        final[:, 4], final[:, 5] = home, ids + n * rounds
        parts.append(final)
    return _work([base.ops, *parts], len(base.ops), number + writers * each * rounds, rng, b"ckpt.shard.")


def mixed(rng: np.random.Generator, files: int, ops: int, *, median: int = 40) -> Work:
    """Draws the mixture of a shared file system; directories are popular by Zipf 0.9, files within a directory by Zipf 0.6.

    Directories hold a log-normal number of files with this median below 32 top directories, and the tree was made in random order.
    """
    sizes = np.maximum(1, rng.lognormal(np.log(median), 1.0, max(4, files * 2 // (3 * median)))).astype(np.int64)
    sizes = np.maximum(1, sizes * files // sizes.sum())
    count, tops = len(sizes), min(32, max(1, len(sizes) // 4))
    top = ROOT + 1 + np.arange(tops)
    directories = ROOT + 1 + tops + np.arange(count)
    load = [_rows(MKDIR, np.full(tops, ROOT), top, top), _rows(MKDIR, top[np.arange(count) % tops], directories, directories)]
    total = int(sizes.sum())
    numbers = ROOT + 1 + tops + count + np.arange(total)
    home = np.repeat(np.arange(count), sizes)
    order = rng.permutation(total)
    load.append(_rows(CREATE, directories[home[order]], numbers[order], numbers[order]))
    loaded = np.concatenate(load)
    if not ops:
        return _work([loaded], len(loaded), int(numbers[-1]) + 1, rng, b"file.")
    out, end = mixture(rng, ops, directories, sizes, numbers, int(numbers[-1]) + 1)
    return _work([loaded, out], len(loaded), end, rng, b"file.")


def mixture(rng: np.random.Generator, ops: int, directories: np.ndarray, sizes: np.ndarray, numbers: np.ndarray, fresh: int
            ) -> tuple[np.ndarray, int]:  # fmt: skip
    """Draws `ops` operations of the mixture on a tree; returns their rows, without clients and attributes, and the next free number.

    `numbers` are the files of all directories, directory by directory, of which `sizes[d]` lie in `directories[d]`. An object's name has
    the object's number; new objects and new names are numbered from `fresh` on.
    """
    count = len(directories)
    popularity = (1 + np.arange(count)) ** -0.9
    chosen = rng.permutation(count)[workloads.draw(rng, np.cumsum(popularity) / popularity.sum(), ops, side="left")]
    kinds = rng.choice(np.array(MIXED_KINDS), size=ops, p=SHARES)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    room = sizes + 2 * np.bincount(chosen, minlength=count)  # creates, and what renames bring
    slots = np.concatenate([[0], np.cumsum(room)])
    alive = np.zeros(slots[-1], np.int64)
    for i in range(count):
        alive[slots[i] : slots[i] + sizes[i]] = numbers[starts[i] : starts[i] + sizes[i]]
    out = np.zeros((ops, 8), np.int64)
    end = _mix(kinds, chosen, rng.random(ops), directories, slots, sizes.copy(), alive, fresh, out)
    return out, int(end)


@loop
def _mix(kinds, chosen, draws, directories, slots, sizes, alive, number, out):
    # alive[slots[d] : slots[d] + sizes[d]] are the files of directory d, the popular first; a name's number is its object's, or a fresh
    # one.
    name_of = np.arange(number + 2 * len(kinds) + 1)
    fresh = number
    for i in range(len(kinds)):
        d, kind = chosen[i], kinds[i]
        if sizes[d] == 0 and kind != READDIRPLUS:
            kind = CREATE
        rank = min(sizes[d] - 1, np.int64(sizes[d] * draws[i] ** 2.5))
        out[i, 0] = kind
        out[i, 1] = directories[d]
        if kind == READDIRPLUS:
            continue
        at = slots[d] + rank
        if kind == CREATE:
            at = slots[d] + sizes[d]
            sizes[d] += 1
            alive[at] = fresh
            fresh += 1
        o = alive[at]
        out[i, 2] = name_of[o]
        out[i, 3] = o
        if kind == UNLINK:
            sizes[d] -= 1
            alive[at] = alive[slots[d] + sizes[d]]
        elif kind == RENAME:
            name_of[o] = fresh
            fresh += 1
            out[i, 4] = directories[d]
            out[i, 5] = name_of[o]
            # Half of the renames go to a directory that is busy at the time.
            to = chosen[i - 1] if i > 0 and draws[i] < 0.5 else d
            if to != d and slots[to] + sizes[to] < slots[to + 1]:
                sizes[d] -= 1
                alive[at] = alive[slots[d] + sizes[d]]
                alive[slots[to] + sizes[to]] = o
                sizes[to] += 1
                out[i, 4] = directories[to]
    return fresh


def _rows(kind: int, directory: np.ndarray, name: np.ndarray, number: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(directory), 8), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = kind, directory, name, number
    return rows


def _work(parts: list[np.ndarray], loaded: int, names: int, rng: np.random.Generator, stem: bytes) -> Work:
    ops = np.concatenate(parts)
    # Name 0 is the empty one; object o is called by number o.
    text, offsets = numbered_names(names, stem)
    ops[:, 6] = rng.integers(0, CLIENTS, len(ops))
    attributes = np.zeros((1024, 7), np.int64)
    attributes[:, 0] = 0o100644
    attributes[:, 3] = rng.lognormal(10, 2, 1024).astype(np.int64)
    attributes[:, 4:] = 1_700_000_000_000_000_000 + rng.integers(0, 10**15, 1024)[:, None]
    ops[:, 7] = rng.integers(0, 1024, len(ops))
    return Work(ops, text, offsets, attributes, loaded)
