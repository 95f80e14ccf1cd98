"""Brings the disk from what it shows to what it should show, by renames from staging; never over something the user touched.

Contents are first complete in staging, on the same file system. A new name is made by a link, which fails where something is there; a
file is replaced by a rename directly after a look at its signature. What is not as it was shown stays for the next scan to explain.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable
from functools import partial

from armillary.errors import one_line

from ..replicas.versions import Version
from . import durable
from .entries import MODE, Entry, Stat, entry, is_racy, kind, kind_of, raw, signature, text
from .scanning import hash_file, now_ns
from .store import DirectoryStore, Shown

#: Placements that are recorded together.
CHUNK = 4096
CONFLICT = b"~conflict-"
#: Directories kept open while placing.
OPEN = 64


class Touched(Exception):
    """Something at a path is not as it was shown."""


class Placing:
    """One pass over what is wanted.

    `touched` are paths that the user changed, `waiting` contents that are not here, `failed` has one line for each thing that went wrong.
    """

    def __init__(self, store: DirectoryStore) -> None:
        self.store = store
        self.touched: set[str] = set()
        self.waiting: set[str] = set()
        self.failed: list[str] = []
        self.placed: list[tuple[str, str]] = []
        self._open: dict[bytes, int] = {}
        self._root = os.open(store.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._rows: list[Shown] = []
        self._dropped: list[bytes] = []
        self._finished: list[bytes] = []
        self._uses: Counter[str] = Counter()
        self._stamp = now_ns(store)
        self._staging = os.fspath(store.staging)
        #: What is known to lie at the paths in question.
        self._known = store.shown_wanted()

    def run(self) -> None:
        """Places all that can be placed."""
        wanted = self.store.wanted()
        if not wanted:
            return
        files = [(path, one) for path, one in wanted if one is not None and kind(one) != "dir"]
        folders = [(path, one) for path, one in wanted if one is not None and kind(one) == "dir"]
        for path, one in files:
            self._stage(path, one)
        before = dict(self._known)
        for path, wish in wanted:
            row = before.get(path)
            if row is not None and row.kind != "dir" and kind(wish) in (None, "dir"):
                self._do(path, partial(self._remove, path, wish, row))
        for path, wish in reversed(wanted):
            row = before.get(path)
            if (row is None or row.kind == "dir") and kind(wish) != "dir":
                self._do(path, partial(self._remove_folder, path, wish, row))
        for path, _ in folders:
            self._do(path, partial(self._make_folder, path))
        for path, one in files:
            holds = entry(one)
            if holds is not None and (holds.kind == "link" or holds.data not in self.waiting):
                self._do(path, partial(self._place, path, one, holds))
        for path, one in reversed(folders):
            self._do(path, partial(self._finish_folder, path, one))
        self._record()

    def close(self) -> None:
        """Gives back what is open."""
        self._forget_open()
        os.close(self._root)

    def __enter__(self) -> Placing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, path: bytes, work: Callable[[], None]) -> None:
        name = text(path)
        if name in self.touched:
            return
        try:
            work()
        except Touched:
            self.touched.add(name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOENT):
                self.touched.add(name)
            else:
                self.failed.append(f'"{one_line(name, 120)}": {error.strerror}; it waits')
        if len(self._finished) + len(self._dropped) >= CHUNK:
            self._record()

    def _record(self) -> None:
        """Says in the state what lies on disk now; before that it is on the device."""
        if not (self._rows or self._dropped or self._finished):
            return
        if self.store.durably:
            durable.flush(self.store.root)
        with self.store.transaction():
            self.store.drop_shown(self._dropped)
            self.store.keep_shown(self._rows)
            self.store.run("DELETE FROM want WHERE path = ?", ((path,) for path in self._finished))
        self._rows, self._dropped, self._finished = [], [], []

    # Contents.

    def _stage(self, path: bytes, one: Version) -> None:
        """Puts a content that is not in staging there, from a file that holds it."""
        holds = entry(one)
        assert holds is not None
        row = self._known.get(path)
        if holds.kind != "file" or (row is not None and row.entry.alike(holds)):
            return
        if not staged(self.store, holds.data):
            self.waiting.add(holds.data)
        self._uses[holds.data] += 1

    def _take(self, holds: Entry) -> str:
        """Takes a file in staging that is ours to rename, with its permissions."""
        source = f"{self._staging}/{holds.data}"
        self._uses[holds.data] -= 1
        if self._uses[holds.data] > 0:
            copy = f"{self._staging}/copy"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
            copy_file(source, copy)
            source = copy
        if kind_of(os.lstat(source).st_mode) != "file":
            raise OSError(errno.EINVAL, "what lies in staging is no file")
        os.chmod(source, holds.mode)
        return source

    # Places.

    def _at(self, path: bytes, *, make: bool = False) -> tuple[int, bytes]:
        """Opens the directory of a path and returns it with the name in it. No link is followed, so that nothing lies outside the root."""
        folder, _, name = path.rpartition(b"/")
        return self._folder(folder, make), name

    def _folder(self, folder: bytes, make: bool) -> int:
        if not folder:
            return self._root
        if folder in self._open:
            return self._open[folder]
        parent, _, name = folder.rpartition(b"/")
        within = self._folder(parent, make)
        if name in (b"", b".", b".."):
            raise OSError(errno.ELOOP, "leads out of the directory")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=within)
        except FileNotFoundError:
            if not make:
                raise
            os.mkdir(name, dir_fd=within)
            fd = os.open(name, flags, dir_fd=within)
        if len(self._open) >= OPEN:
            oldest = next(iter(self._open))
            if oldest != parent:
                os.close(self._open.pop(oldest))
        self._open[folder] = fd
        return fd

    def _forget_open(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _look(self, path: bytes, row: Shown | None) -> os.stat_result | None:
        """Returns what lies there if it is what was shown, or None for nothing."""
        try:
            fd, name = self._at(path)
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if row is None or kind_of(found.st_mode) != row.kind:
            raise Touched
        if row.kind == "file":
            now = signature(found)
            if now._replace(mtime=0) != row.stat._replace(mtime=0) or (row.stat.mtime != now.mtime and row.stat.mtime != -1):
                raise Touched
            if row.stat.mtime == -1:
                read = hash_file(self.store, path)
                if read.hash != row.data or not read.steady or read.stat != now:
                    raise Touched
        elif row.kind == "link" and text(os.readlink(name, dir_fd=fd)) != row.data:
            raise Touched
        return found

    def _remove(self, path: bytes, one: Version | None, row: Shown) -> None:
        if self._look(path, row) is not None:
            fd, name = self._at(path)
            if CONFLICT in name:
                # Whoever wrote `name` may not have seen that there was a copy; it can still be found.
                away = self.store.folder / "superseded"
                away.mkdir(exist_ok=True)
                os.rename(name, os.fsencode(away / row.id), src_dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)
            durable.wrote()
        self._drop(path)
        if one is None:
            self._done(path, "delete")

    def _drop(self, path: bytes) -> None:
        self._known.pop(path, None)
        self._dropped.append(path)

    def _remove_folder(self, path: bytes, one: Version | None, row: Shown | None) -> None:
        if row is not None:
            self._forget_open()
            try:
                fd, name = self._at(path)
                os.rmdir(name, dir_fd=fd)
                durable.wrote()
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                # Something of the user's is in it, so it stays, and the next scan finds it as new.
            self._drop(path)
        if one is None:
            self._done(path, "delete")

    def _make_folder(self, path: bytes) -> None:
        fd, name = self._at(path, make=True)
        try:
            os.mkdir(name, dir_fd=fd)
            durable.wrote()
        except FileExistsError:
            if kind_of(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode) != "dir":
                raise Touched from None

    def _finish_folder(self, path: bytes, one: Version) -> None:
        """Sets the permissions last, because they may forbid to place things in it."""
        holds = entry(one)
        assert holds is not None
        fd, name = self._at(path)
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if kind_of(found.st_mode) != "dir":
            raise Touched
        if found.st_mode & MODE != holds.mode:
            os.chmod(name, holds.mode | found.st_mode & 0o7000, dir_fd=fd)
            durable.wrote()
        self._rows.append(Shown(path, one.id, "dir", holds.mode, "", Stat(0, 0, 0, found.st_ino)))
        self._done(path, "directory")

    def _place(self, path: bytes, one: Version, holds: Entry) -> None:
        row = self._known.get(path)
        # Where nothing is known to lie, making a link tells.
        there = self._look(path, row) if row is not None else None
        fd, name = self._at(path, make=True)
        if holds.kind == "link":
            self._link(fd, name, holds, there is not None)
        elif there is not None and row is not None and row.entry.alike(holds):
            os.chmod(name, holds.mode, dir_fd=fd)
        elif there is not None:
            os.rename(self._take(holds), name, dst_dir_fd=fd)
        else:
            self._name(self._take(holds), fd, name)
        durable.wrote()
        stat = signature(os.stat(name, dir_fd=fd, follow_symlinks=False))
        if not self._uses[holds.data]:
            self.store.ready.discard(holds.data)
        if holds.kind == "link":
            stat = Stat(len(raw(holds.data)), 0, 0, stat.ino)
        elif is_racy(stat, self._stamp):
            stat = stat._replace(mtime=-1)
        self._rows.append(Shown(path, one.id, holds.kind, holds.mode, holds.data, stat))
        self._done(path, "create" if there is None else "update")

    def _name(self, source: str, fd: int, name: bytes) -> None:
        """Gives a staged file its name where nothing lies."""
        try:
            os.link(source, name, dst_dir_fd=fd)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                raise
            # The file system has no hard links.
            with contextlib.suppress(FileNotFoundError):
                os.stat(name, dir_fd=fd, follow_symlinks=False)
                raise Touched from None
            os.rename(source, name, dst_dir_fd=fd)
            return
        durable.wrote()
        os.unlink(source)

    def _link(self, fd: int, name: bytes, holds: Entry, replaces: bool) -> None:
        if not replaces:
            os.symlink(raw(holds.data), name, dir_fd=fd)
            return
        made = self.store.staging / "link"
        with contextlib.suppress(FileNotFoundError):
            made.unlink()
        os.symlink(raw(holds.data), made)
        os.rename(made, name, dst_dir_fd=fd)

    def _done(self, path: bytes, what: str) -> None:
        self._finished.append(path)
        self.placed.append((what, text(path)))


def staged(store: DirectoryStore, data: str) -> bool:
    """Returns whether a content is in staging, after taking it there from a file that holds it if need be."""
    if data in store.ready:
        return True
    for row in store.shown_with(data):
        try:
            if hash_file(store, row.path, store.staging).hash == data:
                store.ready.add(data)
                durable.wrote()
                return True
        except OSError:
            continue
    return False


def copy_file(source: str, target: str) -> None:
    """Copies bytes, by the file system itself where it can."""
    with open(source, "rb") as read, open(target, "xb") as write:
        left = os.fstat(read.fileno()).st_size
        while left:
            done = os.copy_file_range(read.fileno(), write.fileno(), left)
            if done == 0:
                break
            left -= done
