"""Operations on a tree of files, as arrays: what every engine is given.

An operation names its directory by number and its object by name, as a client does that has resolved and cached the directories of its
path. `ops` is int64[n, 8]:

    kind, directory, name, object, second directory, second name, client, row of `attributes`

Names are numbers in a table of bytes. The first `loaded` operations build the tree and are not timed. Directory 1 is the root, and exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from armillary.errors import InputError

LOOKUP, STAT, OPEN, CREATE, MKDIR, UNLINK, RMDIR, READDIR, READDIRPLUS, RENAME, SETATTR = range(11)
KINDS = ("lookup", "stat", "open", "create", "mkdir", "unlink", "rmdir", "readdir", "readdirplus", "rename", "setattr")
CHANGES = (CREATE, MKDIR, UNLINK, RMDIR, RENAME, SETATTR)
KIND, DIR, NAME, OBJECT, DIR2, NAME2, CLIENT, ATTRIBUTES = range(8)
CLIENTS = 24 * 16
ROOT = 1
#: Columns of `attributes`.
MODE, UID, GID, SIZE, ATIME, MTIME, CTIME = range(7)


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
        """uint64: the hash of each name."""
        from .records import hash_names

        out = np.zeros(len(self.offsets) - 1, np.uint64)
        hash_names(self.text, self.offsets, out)
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
        """A name's bytes."""
        return self.text[self.offsets[number] : self.offsets[number + 1]].tobytes()


class WorkBuilder:
    """Collects operations one by one: for files, tests and small work."""

    def __init__(self, clients: int = CLIENTS) -> None:
        self.clients = clients
        self._ops: list[tuple[int, ...]] = []
        self._names: dict[bytes, int] = {b"": 0}
        self._attributes: list[tuple[int, ...]] = [(0o644, 0, 0, 0, 0, 0, 0)]
        self._tree: dict[tuple[int, bytes], int] = {}
        self._kinds: dict[int, int] = {ROOT: MKDIR}
        self._children: dict[int, int] = {ROOT: 0}
        self._next = ROOT + 1
        self.loaded = 0
        self.missing = 0

    def find(self, directory: int, name: bytes) -> int | None:
        """The object of this name, or None."""
        return self._tree.get((directory, name))

    def is_directory(self, number: int) -> bool:
        """Whether the object is a directory."""
        return self._kinds.get(number) == MKDIR

    def children(self, directory: int) -> int:
        """How many children the directory has."""
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
        self._ops.append((kind, directory, self._number(name), number, second, self._number(name2), client % self.clients, row))
        return number

    def load_ends(self) -> None:
        """What was added so far builds the tree; what follows is timed."""
        self.loaded = len(self._ops)

    def expected(self) -> dict[tuple[int, bytes], int]:
        """(directory, name) → object after all operations."""
        return dict(self._tree)

    def build(self, label: str = "") -> Work:
        """The work."""
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
    """(text, offsets) of "", and of `stem` and eight digits for each number below `count`."""
    digits = (np.arange(count)[:, None] // 10 ** np.arange(7, -1, -1)[None, :]) % 10 + 48
    table = np.empty((count, len(stem) + 8), np.uint8)
    table[:, : len(stem)] = np.frombuffer(stem, np.uint8)
    table[:, len(stem) :] = digits
    return np.append(table.reshape(-1), np.uint8(0)), np.concatenate([[0], np.arange(count + 1) * (len(stem) + 8)])
