"""A metadata store in one file with MDSec's layout: millions of small records, with a directory's children side by side."""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import secrets
import stat
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from armillary.errors import InputError
from armillary.files.opening import kind_of as kind_of_file
from armillary.kernels import kernel

from ..mdsec import format_space, new_layout
from ..record_groups.groups import (
    CHILDREN,
    COLUMNS,
    DEPTH,
    EXTENT,
    HEAD,
    HIGH,
    KEY0,
    KEY1,
    LARGEST_EXTENT,
    NEXT_ID,
    ROWS,
    SLOTS,
    TABLE_USED,
    TAKEN,
    WORDS,
    Layout,
    extension_place,
    find,
    read_children,
    record_at,
)
from ..record_groups.operations import NEEDS_ROOM, rename, run
from ..record_groups.records import DIRECTORY, INLINE_NAME, MAGIC, NAME_AT, ROOT, VERSION, hash_names, kind_of, name_length
from ..simulation.accesses import empty
from ..simulation.engine import EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY
from ..workload import CREATE, MKDIR, RMDIR, SETATTR, UNLINK

if TYPE_CHECKING:
    import polars as pl

ATTRIBUTES = ("mode", "uid", "gid", "size", "atime", "mtime", "ctime")
_FIELDS = ("id", "parent", "directory", "nlink", *ATTRIBUTES)
_SAYS = {ENOENT: "no such name", EEXIST: "the name exists", ENOTDIR: "not a directory", EISDIR: "a directory", EINVAL: "into itself",
         ENOTEMPTY: "the directory is not empty"}  # fmt: skip
Name = str | bytes
#: Bytes of the superblock: magic, version, group, handlers, two words of the hash's key, and the checksum of these.
_SUPERBLOCK = 56
#: Ids that a store may have beyond 64 for each of its slots; ids are never used twice while a store is open, so they outrun the slots.
_SPARE_IDS = 1 << 24


class MetadataStore:
    """Names and attributes of files in one file; ids are numbers, and directory 1 is the root.

    `granule` (bytes, a power of two up to 16384) is the unit in which records are read and written together, and `handlers` is the number
    of renames that can be open at once. An existing store is opened and, after a crash, repaired: every operation is there completely or
    not at all, whenever the process was killed. To survive a loss of power, call `sync`, because the pages of the file may reach the disk
    in any order before that. Threads may share a store; calls run one after another, without the interpreter's lock. A store is open
    in one process at a time; opening it a second time raises InputError.
    """

    def __init__(self, path: str | os.PathLike[str], granule: int = 4096, handlers: int = 4) -> None:
        if granule < 64 or granule > 16384 or granule & (granule - 1):
            raise InputError(f"granule: found {granule}; expected a power of two from 64 to 16384")
        if not 1 <= handlers <= 256:
            raise InputError(f"handlers: found {handlers}; expected 1 to 256")
        self.path = Path(path)
        self.handlers = handlers
        self._group = max(granule, 4096)
        self._lock = threading.RLock()
        self._acc = empty(1 << 16)
        #: The key under which names are hashed, which is drawn once for each store.
        self._key = (0, 0)
        self._file = self._alone()
        #: Intents that were found open and finished or undone.
        self.recovered = 0
        try:
            if os.fstat(self._file.fileno()).st_size:
                self._open()
            else:
                self._create()
        except BaseException:
            self._release()
            raise

    def create_many(
        self, parent: int, names: Sequence[Name], attrs: Mapping[str, Any] | None = None, *, directories: bool = False
    ) -> np.ndarray:
        """Creates files (or directories) in `parent` and returns their ids, int64.

        `attrs` maps mode, uid, gid, size, atime, mtime and ctime (ns) to arrays or numbers. Names that exist already raise InputError once
        the others are created.
        """
        text, offsets = _names(names)
        n = len(names)
        ops = np.zeros((n, 8), np.int64)
        with self._lock:
            self._directory(parent)
            first = int(self._layout.m[NEXT_ID])
            ids = first + np.arange(n)
            self._layout.m[NEXT_ID] += n
            ops[:, 0], ops[:, 1], ops[:, 2], ops[:, 3] = MKDIR if directories else CREATE, parent, np.arange(n), ids
            ops[:, 7] = np.arange(n)
            status = self._run(ops, _attributes(n, attrs, 0o40755 if directories else 0o100644), text, offsets, ids=first + n,
                               rows=n if directories else 0)  # fmt: skip
        bad = np.flatnonzero(status)
        if len(bad):
            raise InputError(f'"{_shown(names[int(bad[0])])}" and {len(bad) - 1} more: {_SAYS[int(status[bad[0]])]}', where=str(self.path))
        return ids

    def mkdir(self, parent: int, name: Name, **attrs: Any) -> int:
        """Creates a directory and returns its id."""
        return int(self.create_many(parent, [name], attrs, directories=True)[0])

    def lookup_many(self, parents: int | Sequence[int] | np.ndarray, names: Sequence[Name]) -> np.ndarray:
        """Returns the id of each name in its directory as int64, 0 where there is none."""
        text, offsets = _names(names)
        out = np.zeros(len(names), np.int64)
        where = np.broadcast_to(np.asarray(parents, np.int64), len(names)).copy()
        hashes = np.zeros(len(names), np.uint64)
        hash_names(text, offsets, *self._key, hashes)
        with self._lock:
            self._live()
            _lookup(self._layout, where, text, offsets, hashes, out, self._acc)
        return out

    def stat_many(self, ids: Sequence[int] | np.ndarray) -> pl.DataFrame:
        """Returns id, parent, directory, nlink, mode, uid, gid, size, atime, mtime and ctime by id. A missing id raises InputError."""
        import polars as pl

        wanted = np.ascontiguousarray(ids, np.int64)
        out = np.zeros((len(_FIELDS), len(wanted)), np.int64)
        with self._lock:
            self._live()
            bad = _stat(self._layout, wanted, out)
        if bad >= 0:
            raise InputError(f"id {int(wanted[bad])}; expected one that exists", where=str(self.path))
        return pl.DataFrame(_series(out))

    def readdirplus(self, directory: int) -> pl.DataFrame:
        """Returns the children of a directory with their attributes; `name` is binary, because names are bytes."""
        with self._lock:
            self._directory(directory)
            row = self._layout.dirs[self._layout.row[directory]]
            places = np.zeros(int(row[CHILDREN]), np.int64)
            found = read_children(self._layout, directory, places, self._acc) if row[HEAD] else 0
            self._acc[0, 0] = 0
            return self._frame(places[:found])

    def unlink_many(self, parents: int | Sequence[int] | np.ndarray, names: Sequence[Name]) -> None:
        """Removes files. Names that cannot be removed raise InputError once the others are gone."""
        self._remove(UNLINK, parents, names)

    def rmdir(self, parent: int, name: Name) -> None:
        """Removes an empty directory."""
        self._remove(RMDIR, parent, [name])

    def setattr_many(self, parents: int | Sequence[int] | np.ndarray, names: Sequence[Name], attrs: Mapping[str, Any]) -> None:
        """Replaces the attributes given; the others stay."""
        ids = self.lookup_many(parents, names)
        old = self.stat_many(ids) if (ids > 0).all() else None
        if old is None:
            raise InputError(f'"{_shown(names[int(np.argmax(ids == 0))])}": no such name', where=str(self.path))
        merged = {**{name: old[name].to_numpy() for name in ATTRIBUTES}, **attrs}
        ops = np.zeros((len(names), 8), np.int64)
        ops[:, 0], ops[:, 1], ops[:, 2], ops[:, 7] = SETATTR, parents, np.arange(len(names)), np.arange(len(names))
        with self._lock:
            self._run(ops, _attributes(len(names), merged, 0), *_names(names))

    def rename(self, parent: int, name: Name, new_parent: int, new_name: Name) -> None:
        """Moves a name; an existing one is replaced, as in POSIX."""
        text, offsets = _names([name, new_name])
        hashes = np.zeros(2, np.uint64)
        hash_names(text, offsets, *self._key, hashes)
        (start, start2), (length, length2) = offsets[:2], np.diff(offsets)
        with self._lock:
            self._directory(parent)
            self._directory(new_parent)
            for splits in (False, True):
                self._fit(2, 0, splits=splits)
                self._acc[0, 0] = 0
                status = rename(self._layout, parent, new_parent, self.handlers, hashes[0], start, length, hashes[1], start2, length2, text,
                                self._acc)  # fmt: skip
                if status != NEEDS_ROOM:
                    break
            self._acc[0, 0] = 0
        if status:
            raise InputError(f'"{_shown(name)}" to "{_shown(new_name)}": {_SAYS[int(status)]}', where=str(self.path))

    def query(self, where: pl.Expr | None = None) -> pl.DataFrame:
        """Returns all records for which an expression over path, name and the attributes holds, as `find` would print them.

        `path` starts with "/"; bytes that are not UTF-8 are shown as "\N{REPLACEMENT CHARACTER}", `name` keeps them.
        """
        import polars as pl

        with self._lock:
            self._live()
            frame = self._frame(self._layout.place[2 : int(self._layout.m[NEXT_ID])])
        shown = pl.Series("shown", [name.decode(errors="replace") for name in frame["name"].to_list()], pl.String)
        frame = frame.with_columns(shown)
        folders = frame.filter(pl.col("directory"))
        up = dict(zip(folders["id"].to_list(), zip(folders["parent"].to_list(), folders["shown"].to_list(), strict=True), strict=True))
        paths = {ROOT: ""}
        for number in up:
            missing = []
            at = number
            while at not in paths:
                missing.append(at)
                at = up[at][0]
            for one in reversed(missing):
                paths[one] = f"{paths[up[one][0]]}/{up[one][1]}"
        above = pl.DataFrame({"parent": list(paths), "above": list(paths.values())}, schema={"parent": pl.Int64, "above": pl.String})
        frame = frame.join(above, on="parent", how="left").with_columns(path=pl.concat_str("above", pl.lit("/"), "shown"))
        frame = frame.select("path", "name", *_FIELDS)
        return frame if where is None else frame.filter(where)

    def check(self) -> list[str]:
        """Returns the faults of the file, one sentence each; the list is empty for a sound one."""
        from ..record_groups.inspection import check

        with self._lock:
            self._live()
            return check(self._layout.b, self._group, int(self._layout.m[HIGH]), self.handlers, self._key)

    def __len__(self) -> int:
        """Returns the number of records besides the root."""
        with self._lock:
            return int((self._layout.place[: int(self._layout.m[NEXT_ID])] >= 0).sum()) - 1

    def sync(self) -> None:
        """Waits until everything is on the disk."""
        with self._lock:
            self._live()
            self._map.flush()

    def close(self) -> None:
        """Syncs and closes."""
        with self._lock:
            if not self._file.closed:
                self._map.flush()
                self._release()

    def __enter__(self) -> MetadataStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def scan(cls, root: str | os.PathLike[str], path: str | os.PathLike[str], granule: int = 4096, handlers: int = 4) -> MetadataStore:
        """Makes a store at `path` of everything under `root`; links are not followed, and what cannot be read is left out."""
        top = Path(root)
        if not top.is_dir():
            raise InputError("no such folder", where=str(root))
        target = Path(path)
        if target.exists() and target.stat().st_size:
            raise InputError("exists already; expected a new file", where=str(path))
        store = cls(target, granule, handlers)
        todo = [(os.fsencode(top), ROOT)]
        while todo:
            folder, number = todo.pop()
            kinds: tuple[list[Any], list[Any]] = ([], [])
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        try:
                            kinds[entry.is_dir(follow_symlinks=False)].append((entry.name, entry.stat(follow_symlinks=False)))
                        except OSError:
                            continue
            except OSError:
                continue
            for is_directory, found in enumerate(kinds):
                if found:
                    attrs = {
                        name: [getattr(s, f"st_{name}" if "time" not in name else f"st_{name}_ns") for _, s in found] for name in ATTRIBUTES
                    }
                    ids = store.create_many(number, [name for name, _ in found], attrs, directories=bool(is_directory))
                    if is_directory:
                        todo += [(os.path.join(folder, name), int(i)) for (name, _), i in zip(found, ids, strict=True)]
        return store

    # The file: superblock, intents, the root's group, then extents.

    def _create(self) -> None:
        groups = self.handlers + 2 + 1024
        self._resize(groups)
        self._layout = self._indexes(groups, 4096, 256)
        self._key = self._layout.m[KEY0], self._layout.m[KEY1] = secrets.randbits(63), secrets.randbits(63)
        header = np.array([MAGIC, VERSION, self._group, self.handlers, *self._key], np.uint64)
        self._layout.w[: len(header)] = header
        self._layout.w[len(header)] = zlib.crc32(header.tobytes())
        format_space(self._layout, self.handlers, self._acc)
        self._acc[0, 0] = 0

    def _open(self) -> None:
        from ..record_groups.recovery import largest_id, recover

        size = os.fstat(self._file.fileno()).st_size
        where = str(self.path)
        head = self._file.read(_SUPERBLOCK).ljust(_SUPERBLOCK, b"\0")
        fields = np.frombuffer(head, np.uint64)
        if int(fields[0]) != MAGIC:
            raise InputError("found no metadata store", where=where)
        if int(fields[1]) != VERSION:
            raise InputError(f"found version {int(fields[1])}; expected {VERSION}", where=where)
        if int(fields[6]) != zlib.crc32(head[:48]):
            raise InputError("the first block has a wrong checksum", where=where)
        if int(fields[2]) != self._group:
            raise InputError(f"found granule {int(fields[2])}; expected {self._group} as asked for", where=where)
        if size % self._group:
            raise InputError(f"found {size} bytes; expected a multiple of the granule, {self._group}", where=where)
        self.handlers = int(fields[3])
        groups = size // self._group
        if not 1 <= self.handlers <= 256 or groups < self.handlers + 2:
            raise InputError(
                f"found {groups} groups and {self.handlers} handlers; expected at least two groups more than handlers", where=where
            )
        self._resize(groups)
        used = int(np.count_nonzero(self._space.reshape(groups, -1)[:, 45]))
        slots = self._group // 256 - 1
        # No larger id is believed than the slots could have had in a long life.
        ids = min(int(largest_id(self._space.view(np.uint64), groups, self._group // 8, slots)) + 2, 64 * used * slots + _SPARE_IDS)
        self._layout = self._indexes(groups, ids, used * slots + 16)
        self._key = self._layout.m[KEY0], self._layout.m[KEY1] = int(fields[4]) & (2**63 - 1), int(fields[5]) & (2**63 - 1)
        self.recovered = recover(self._layout, self.handlers, self._acc, where)
        self._acc[0, 0] = 0

    def _alone(self) -> BinaryIO:
        """Opens the file for this process alone."""
        where = str(self.path)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"cannot be opened ({(error.strerror or str(error)).lower()})", where=where) from None
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise InputError(f"found {kind_of_file(mode)}; expected a regular file", where=where)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError("the store is already open, here or in another process", where=where) from None
            return os.fdopen(descriptor, "r+b")
        except BaseException:
            os.close(descriptor)
            raise

    def _release(self) -> None:
        # The map keeps a descriptor of its own, so closing the file alone would keep the lock.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    def _indexes(self, groups: int, ids: int, rows: int) -> Layout:
        return new_layout(self._group, groups=groups, ids=ids, directories=rows, handlers=self.handlers, tiny=5, chain=16, extent=16,
                          space=self._space)  # fmt: skip

    def _resize(self, groups: int) -> None:
        size = groups * self._group
        if os.fstat(self._file.fileno()).st_size < size:
            self._file.truncate(size)
        self._map = mmap.mmap(self._file.fileno(), size)
        self._space = np.frombuffer(self._map, np.uint8)

    def _fit(self, creates: int, rows: int, ids: int = 0, *, splits: bool = False) -> None:
        """Makes room for one more operation, and for this many ids and directories, in file and indexes.

        With `splits` there is room to split the longest bucket that any directory can have, too.
        """
        s = self._layout
        slots, words = int(s.m[SLOTS]), int(s.m[WORDS])
        groups = len(s.b) // (8 * words)
        most, deepest = (int(s.dirs[: int(s.m[ROWS]), column].max()) for column in (TAKEN, DEPTH))
        need = int(s.m[HIGH]) + 4 * LARGEST_EXTENT + int(s.m[EXTENT]) + 3 * (creates // slots) + 64 + (2 * most if splits else 0)
        changed: dict[str, Any] = {}
        if need > groups:
            groups = max(need, groups * 3 // 2)
            self._resize(groups)
            changed.update(b=self._space, w=self._space.view(np.uint64), h=self._space.view(np.uint32),
                           tags=_longer(s.tags, groups * slots),
                           link=_longer(s.link, groups))  # fmt: skip
        if ids > len(s.place):
            longest = max(ids, 2 * len(s.place))
            changed.update(place=_longer(s.place, longest, -1), row=_longer(s.row, longest, -1))
        if int(s.m[ROWS]) + rows + 4 > len(s.dirs):
            dirs = np.zeros((max(int(s.m[ROWS]) + rows + 4, 2 * len(s.dirs)), COLUMNS), np.int64)
            dirs[: len(s.dirs)] = s.dirs
            changed["dirs"] = dirs
        table = int(s.m[TABLE_USED]) + (2 << deepest)
        if splits and table > len(s.table):
            changed["table"] = _longer(s.table, max(table, 2 * len(s.table)))
        if changed:
            self._layout = s._replace(**changed)
        accesses = 8192 + 2 * most + int(s.dirs[: int(s.m[ROWS]), CHILDREN].max()) + ((slots + 8) * most if splits else 0)
        if len(self._acc) < accesses:
            self._acc = empty(2 * accesses)

    def _run(
        self, ops: np.ndarray, attributes: np.ndarray, text: np.ndarray, offsets: np.ndarray, *, ids: int = 0, rows: int = 0
    ) -> np.ndarray:
        hashes = np.zeros(len(ops), np.uint64)
        hash_names(text, offsets, *self._key, hashes)
        status, ends, out = np.zeros(len(ops), np.uint8), np.zeros(len(ops), np.int64), np.zeros(1, np.int64)
        done, stuck = 0, False
        while done < len(ops):
            self._fit(min(len(ops) - done, 100_000), rows, ids, splits=stuck)
            self._acc[0, 0] = 0
            last = min(len(ops), done + 100_000)
            reached = run(self._layout, ops, attributes, text, offsets, hashes, done, last, self.handlers, self._acc, ends[done:], status,
                          out)  # fmt: skip
            if reached == done and stuck:
                raise InputError(f"found no room for operation {done}", where=str(self.path))
            done, stuck = reached, reached == done
        self._acc[0, 0] = 0
        return status

    def _remove(self, kind: int, parents: int | Sequence[int] | np.ndarray, names: Sequence[Name]) -> None:
        text, offsets = _names(names)
        ops = np.zeros((len(names), 8), np.int64)
        ops[:, 0], ops[:, 1], ops[:, 2] = kind, parents, np.arange(len(names))
        with self._lock:
            for parent in np.unique(ops[:, 1]).tolist():
                self._directory(parent)
            status = self._run(ops, np.zeros((1, 7), np.int64), text, offsets)
        bad = np.flatnonzero(status)
        if len(bad):
            raise InputError(f'"{_shown(names[int(bad[0])])}" and {len(bad) - 1} more: {_SAYS[int(status[bad[0]])]}', where=str(self.path))

    def _frame(self, places: np.ndarray) -> pl.DataFrame:
        import polars as pl

        places = places[places >= 0]
        out = np.zeros((len(_FIELDS), len(places)), np.int64)
        ends = np.zeros(len(places) + 1, np.int64)
        text = np.empty(255 * len(places) + 1, np.uint8)
        _gather(self._layout, places, out, text, ends)
        raw, marks = text[: ends[-1]].tobytes(), ends.tolist()
        names = pl.Series("name", [raw[a:b] for a, b in itertools.pairwise(marks)], pl.Binary)
        return pl.DataFrame([names, *_series(out)])

    def _directory(self, number: int) -> None:
        self._live()
        if not 0 < number < len(self._layout.row) or self._layout.row[number] < 0:
            raise InputError(f"id {number}; expected a directory", where=str(self.path))

    def _live(self) -> None:
        if self._file.closed:
            raise InputError("the store is closed", where=str(self.path))


def _longer(values: np.ndarray, length: int, fill: int = 0) -> np.ndarray:
    longer = np.full(length, fill, values.dtype) if fill else np.zeros(length, values.dtype)
    longer[: len(values)] = values
    return longer


def _shown(name: Name) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


def _series(fields: np.ndarray) -> list[pl.Series]:
    import polars as pl

    return [pl.Series(name, fields[i] != 0 if name == "directory" else fields[i]) for i, name in enumerate(_FIELDS)]


def _names(names: Sequence[Name]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (text, offsets) of names, each 1 to 255 bytes without "/" and NUL."""
    try:
        # One call encodes all of them.
        encoded = os.fsencode("\0".join(names)).split(b"\0") if names else []  # type: ignore[arg-type]
    except TypeError:
        encoded = []
    if len(encoded) != len(names):
        encoded = [name if isinstance(name, bytes) else os.fsencode(name) for name in names]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    text = np.frombuffer(bytearray(b"".join(encoded) + b"\0"), np.uint8)
    lengths = np.diff(offsets)
    if len(encoded) and (lengths.min() < 1 or lengths.max() > 255 or ((text[:-1] == 47) | (text[:-1] == 0)).any() or lengths.min() <= 2):
        from ..workload import check_name

        for name in encoded:
            check_name(name)
    return text, offsets


def _attributes(n: int, attrs: Mapping[str, Any] | None, mode: int) -> np.ndarray:
    table = np.zeros((n, 7), np.int64)
    table[:, 0] = mode
    for name, value in (attrs or {}).items():
        if name not in ATTRIBUTES:
            from armillary.errors import unknown

            raise unknown("attribute", name, ATTRIBUTES)
        column = np.asarray(value, np.int64)
        if column.ndim and len(column) != n:
            raise InputError(f"{name}: found {len(column)} values; expected {n}")
        table[:, ATTRIBUTES.index(name)] = column
    if len(table) and (table[:, :3].min() < 0 or table[:, :3].max() >= 2**32):
        raise InputError("mode, uid, gid: expected 32-bit numbers")
    return table


@kernel
def _lookup(s, parents, text, offsets, hashes, out, acc):
    for i in range(len(parents)):
        if 0 < parents[i] < len(s.row) and s.row[parents[i]] >= 0:
            acc[0, 0] = 0
            place = find(s, parents[i], hashes[i], text, offsets[i], offsets[i + 1] - offsets[i], acc)
            if place >= 0:
                out[i] = np.int64(s.w[record_at(s, place)])
    acc[0, 0] = 0


@kernel
def _fields(s, place, out, i):
    r = record_at(s, place)
    out[0, i], out[1, i] = np.int64(s.w[r]), np.int64(s.w[r + 1])
    out[2, i] = 1 if kind_of(s.b, r) == DIRECTORY else 0
    out[3, i] = np.int64(s.h[2 * r + 16])
    for c in range(3):
        out[4 + c, i] = np.int64(s.h[2 * r + 12 + c])
    for c in range(4):
        out[7 + c, i] = np.int64(s.w[r + 2 + c])


@kernel
def _stat(s, ids, out):
    """Writes the attributes of ids; returns the number of the first that does not exist, or -1."""
    for i in range(len(ids)):
        if ids[i] <= 0 or ids[i] >= len(s.place) or s.place[ids[i]] < 0:
            return i
        _fields(s, s.place[ids[i]], out, i)
    return -1


@kernel
def _gather(s, places, out, text, ends):
    at = 0
    for i in range(len(places)):
        _fields(s, places[i], out, i)
        r = record_at(s, places[i])
        length = name_length(s.h, r)
        inline = min(length, INLINE_NAME)
        for j in range(inline):
            text[at + j] = s.b[8 * r + NAME_AT + j]
        if length > INLINE_NAME:
            more = record_at(s, extension_place(s, places[i]))
            for j in range(length - INLINE_NAME):
                text[at + inline + j] = s.b[8 * more + NAME_AT + j]
        at += length
        ends[i + 1] = at
