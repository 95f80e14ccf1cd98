"""One directory that takes part: what its user did becomes versions, and versions of others become files in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from armillary.errors import InputError, one_line

from ..replicas.versions import Item, Version
from . import durable as writes
from .display import MergeContents, plan, reconcile, with_folders
from .entries import entry
from .merging import keep_texts, line_merge
from .placing import Placing, staged
from .scanning import ScanReport, scan
from .store import DirectoryStore
from .wire import PIECE

#: How often placing is tried again after the user changed what was to be replaced.
ROUNDS = 5


class Replica:
    """A directory and its state. When a method returns, what it did outlives a kill, and with `durable` (the default) a loss of power.

    `state` is the name of the state folder in the directory, or the path of one outside it on the same file system. `automerge` merges
    texts line by line where changes do not touch. `keep=False` only looks and writes nothing.
    """

    def __init__(self, path: str | os.PathLike[str], state: str | os.PathLike[str] = ".armillary-sync", *, automerge: bool = False,
                 durable: bool = True, keep: bool = True) -> None:  # fmt: skip
        self.path = Path(os.path.abspath(path))
        if not self.path.is_dir():
            raise InputError("found no directory; expected one to synchronise", where=one_line(str(path)))
        folder = _state_folder(self.path, state)
        self.store = DirectoryStore(self.path, folder, durably=durable, keep=keep)
        #: The name that no path of a version may begin with.
        self.state_name = self.store.state_name
        self.merge: MergeContents | None = line_merge(self.store) if automerge and keep else None
        self.scanned = ScanReport()
        self.placed: list[tuple[str, str]] = []
        self.kept: list[str] = []
        self.failed: list[str] = []
        #: Contents that should lie here and that nobody has given yet.
        self.lacking: set[str] = set()
        self._unflushed = 0
        if keep:
            self._tidy()

    @property
    def id(self) -> str:
        """Its name for life; a directory whose state was lost is another replica."""
        return self.store.me

    def scan(self, hot: Iterable[bytes] = ()) -> ScanReport:
        """Writes down what the user did since the last time, then places what was left to place. Unchanged files are not read."""
        self.scanned = scan(self.store, self.merge, set(hot), self.kept.append)
        self._place()
        return self.scanned

    def conflicts(self) -> tuple[str, ...]:
        """Returns the names under which second heads are shown."""
        return self.store.conflicts()

    def history(self, path: str) -> list[Version]:
        """Returns the versions that led to what lies at a path, the latest first."""
        todo, out, seen = [v.id for v in self.store.heads_at(path)], [], set()
        while todo:
            id = todo.pop(0)
            if id not in seen:
                seen.add(id)
                out.append(self.store.get(id))
                todo.extend(out[-1].parents)
        return out

    def close(self) -> None:
        """Gives the state folder back; nothing is lost without it."""
        self.store.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, items: Iterable[Item]) -> list[Version]:
        """Takes a set of versions in, whole, and shows what follows from them."""
        new = self.take(items)
        self._place()
        return new

    def take(self, items: Iterable[Item]) -> list[Version]:
        """Takes a set of versions in and notes what is to be placed."""
        with self.store.transaction():
            new = self.store.insert(items)
            touched = {v.path for v in new} | {self.store.get(p).path for v in new for p in v.parents}
            merged, kept = reconcile(self.store, sorted({v.file for v in new if v.parents}), self.merge)
            self.kept += kept
            plan(self.store, with_folders(touched | merged))
        return new

    def _place(self) -> None:
        if not self.store.keep:
            return
        for _ in range(ROUNDS):
            with Placing(self.store) as placing:
                placing.run()
            self.placed += placing.placed
            self.failed = [*placing.failed]
            self.lacking = placing.waiting
            if not placing.touched:
                return
            self.scanned = scan(self.store, self.merge, tell=self.kept.append)
        self.failed += [f'"{one_line(name, 120)}": something else lies there; it waits' for name in sorted(placing.touched)]

    # Contents on their way.

    def missing(self, items: Iterable[Item]) -> set[str]:
        """Returns the contents that these versions would show and that are not here; those in other files here are put in staging."""
        listed = [v for _, v in items]
        below = {p for v in listed for p in v.parents}
        out = set()
        for one in listed:
            holds = entry(one)
            if holds is None or holds.kind != "file" or one.id in below or self.store.has(one.id):
                continue
            row = self.store.shown_at(one.path)
            if row is not None and row.entry.alike(holds):
                continue
            if holds.data in self.store.ready or holds.data in out:
                continue
            if staged(self.store, holds.data):
                self._unflushed += 1
            else:
                out.add(holds.data)
        return out

    def content(self, data: str) -> Iterator[bytes] | None:
        """Returns the pieces of a content that lies here, or None if none does. Whoever takes them checks their hash."""
        if data in self.store.ready:
            with contextlib.suppress(OSError):
                return _pieces(os.open(self.store.staging / data, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
        for row in self.store.shown_with(data):
            with contextlib.suppress(OSError):
                return _pieces(self.store.open_beneath(row.path))
        return None

    def arrived(self, source: str, data: str) -> None:
        """Puts a received content, complete and checked, into staging."""
        os.rename(source, f"{self.store.staging}/{data}")
        self.store.ready.add(data)
        self._unflushed += 1
        writes.wrote()

    def flush_staging(self) -> None:
        """Puts on the device what came into staging."""
        if self._unflushed and self.store.durably:
            writes.flush(self.store.staging)
        self._unflushed = 0

    def paths_of(self, contents: Iterable[str]) -> set[bytes]:
        """Returns where files with these contents are thought to lie."""
        return {row.path for data in contents for row in self.store.shown_with(data)}

    def _tidy(self) -> None:
        """Clears staging of what no open transaction needs, and of files that were placed already."""
        needed: set[str] | None = None
        for found in os.scandir(self.store.staging):
            if needed is None:
                needed = self.store.staged()
            if found.name not in needed or found.stat(follow_symlinks=False).st_nlink > 1:
                os.unlink(found.path)
                self.store.ready.discard(found.name)

    def finish(self) -> None:
        """Forgets deletes that everyone has, and clears staging, after a session."""
        self.store.forget_deletes()
        if self.merge is not None:
            keep_texts(self.store)
        self._tidy()


def _pieces(fd: int) -> Iterator[bytes]:
    try:
        while piece := os.read(fd, PIECE):
            yield piece
    finally:
        os.close(fd)


def _state_folder(root: Path, state: str | os.PathLike[str]) -> Path:
    given = os.fspath(state)
    if given in ("", ".", "..") or "\0" in given:
        raise InputError(f'found "{one_line(given)}"; expected a name or a path', where="state")
    folder = root / given if "/" not in given else Path(os.path.abspath(given))
    if folder == root or (folder.parent != root and root in folder.parents):
        raise InputError(f'found "{one_line(given)}"; expected a name in the directory, or a place outside it', where="state")
    near = next(p for p in (folder, *folder.parents) if p.exists())
    if near.is_symlink() or not near.is_dir():
        raise InputError("found something else than a directory; expected a state folder", where=str(near))
    if near.stat().st_dev != root.stat().st_dev:
        raise InputError("found another file system than the directory's; expected the same one, for renames", where=str(folder))
    return folder
