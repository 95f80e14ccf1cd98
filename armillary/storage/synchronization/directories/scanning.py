"""What the user did: the difference between the disk and what was shown there, as versions.

A file is read only if its size, time stamps or number changed, or if it was as young as the clock when it was last read. A renamed file is
known by its number or else by its content. A write to one of several heads that were shown is a version above all of them; so is what is
left when the others were removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from armillary.errors import one_line

from ..replicas.versions import Item, Version
from .beneath import create_new
from .display import MergeContents, plan, reconcile, with_folders
from .entries import MODE, Entry, Kind, Stat, content_hash, entry, entry_version, is_racy, kind, kind_of, signature, text
from .store import DirectoryStore, Shown

PIECE = 1 << 20
#: How often a file that changes while it is read is read again.
TRIES = 3


@dataclass(frozen=True)
class ScanReport:
    """What a scan found: entries on disk, bytes read, and new versions of each sort.

    It has one line for each thing that could not be read (`skipped`) and for each that is never synchronised (`ignored`).
    """

    entries: int = 0
    hashed_bytes: int = 0
    created: int = 0
    written: int = 0
    renamed: int = 0
    deleted: int = 0
    skipped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """New versions."""
        return self.created + self.written + self.renamed + self.deleted


@dataclass(frozen=True)
class Found:
    """Something on disk that is not as it was shown."""

    path: bytes
    holds: Entry
    stat: Stat


@dataclass
class Walk:
    """What a walk over the directory saw."""

    entries: int = 0
    hashed: int = 0
    changed: list[Found] = field(default_factory=list)
    new: list[Found] = field(default_factory=list)
    gone: dict[bytes, Shown] = field(default_factory=dict)
    same: list[Shown] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    #: Directories that could not be looked into, so that nothing is known of what lies below them.
    closed: list[bytes] = field(default_factory=list)


def walk(store: DirectoryStore, hot: set[bytes]) -> Walk:
    """Looks at every entry below the root; of `hot` files a copy is kept as it is read."""
    out = Walk()
    stamp = now_ns(store)
    root = os.fsencode(store.root)
    rows = {row[0]: row for row in store.rows("SELECT path, kind, mode, size, mtime, ctime, ino FROM shown")}
    own = os.fsencode(store.folder.name) if store.folder.parent == store.root else None
    device = os.lstat(root).st_dev
    todo = [b""]
    listed = set()
    while todo:
        prefix = todo.pop()
        listed.add(prefix)
        try:
            listing = os.scandir(root + b"/" + prefix if prefix else root)
        except OSError as error:
            out.skipped.append(f'"{one_line(text(prefix), 120)}": {error.strerror}; nothing below it was looked at')
            out.closed.append(prefix)
            continue
        with listing:
            for item in listing:
                path = prefix + item.name
                if path == own:
                    continue
                out.entries += 1
                try:
                    st = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                row = rows.pop(path, None)
                mode = st.st_mode
                # The common case comes first, an ordinary file as it was.
                if row is not None and row[1:] == (1, mode & MODE, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino) and S_ISREG(mode):
                    continue
                what = kind_of(mode)
                if what == "dir":
                    if st.st_dev != device:
                        out.ignored.append(f'"{one_line(text(path), 120)}": another file system is mounted here; it was left alone')
                        out.closed.append(path + b"/")
                        continue
                    todo.append(path + b"/")
                _compare(store, out, path, what, st, None if row is None else store.shown_at(path), stamp, hot)
    closed = tuple(out.closed)
    for path in map(store.checked_path, rows):
        # A listing may leave out what is moved about meanwhile.
        missed = path[: path.rfind(b"/") + 1] in listed and os.path.lexists(root + b"/" + path)
        if not missed and not (closed and path.startswith(closed)) and (was := store.shown_at(path)) is not None:
            out.gone[path] = was
    return out


def _compare(store: DirectoryStore, out: Walk, path: bytes, what: Kind | None, st: os.stat_result, row: Shown | None, stamp: int,
             hot: set[bytes]) -> None:  # fmt: skip
    if what is None:
        out.ignored.append(f'"{one_line(text(path), 120)}": neither file, directory nor link; it was left alone')
        return
    was = None if row is None else row.entry
    if row is not None and row.kind != what and "dir" in (row.kind, what):
        out.gone[path], row, was = row, None, None
    try:
        read = _read(store, out, path, what, st, stamp, hot)
    except OSError as error:
        read = error.strerror or "cannot be read"
    if isinstance(read, str):
        out.skipped.append(f'"{one_line(text(path), 120)}": {read}')
        return
    if was is not None and was.alike(read.holds) and was.mode == read.holds.mode:
        assert row is not None
        if row.stat != read.stat:
            out.same.append(row._replace(stat=read.stat))
        return
    (out.new if row is None else out.changed).append(read)


def _read(store: DirectoryStore, out: Walk, path: bytes, what: Kind, st: os.stat_result, stamp: int, hot: set[bytes]) -> Found | str:
    if what == "dir":
        return Found(path, Entry("dir", st.st_mode & MODE, 0, ""), Stat(0, 0, 0, st.st_ino))
    if what == "link":
        target = os.readlink(os.fsencode(store.root) + b"/" + path)
        return Found(path, Entry("link", 0, len(target), text(target)), Stat(len(target), 0, 0, st.st_ino))
    for _ in range(TRIES):
        made = hash_file(store, path, store.staging if path in hot else None)
        if path in hot:
            store.ready.add(made.hash)
        out.hashed += made.size
        if made.steady or path in hot:
            mode = made.mode & MODE
            kept = made.stat._replace(mtime=-1) if is_racy(made.stat, stamp) or not made.steady else made.stat
            return Found(path, Entry("file", mode, made.size, made.hash), kept)
    return "it changes all the time; it will be tried again"


@dataclass(frozen=True)
class Hashed:
    """A file as it was read, `steady` if it did not change meanwhile."""

    hash: str
    size: int
    stat: Stat
    mode: int
    steady: bool


def hash_file(store: DirectoryStore, path: bytes, into: Path | None = None) -> Hashed:
    """Reads a file below the root once; with `into` a copy under its hash is kept there, the same bytes."""
    fd = store.open_beneath(path)
    made = content_hash()
    size = 0
    copy = None if into is None else os.fdopen(create_new(into / "reading"), "wb")
    try:
        before = os.fstat(fd)
        while piece := os.read(fd, PIECE):
            made.update(piece)
            size += len(piece)
            if copy is not None:
                copy.write(piece)
        after = os.fstat(fd)
    finally:
        os.close(fd)
        if copy is not None:
            copy.close()
    if copy is not None and into is not None:
        os.rename(into / "reading", into / made.hexdigest())
    steady = signature(before) == signature(after) and size == after.st_size
    return Hashed(made.hexdigest(), size, signature(before), before.st_mode, steady)


def now_ns(store: DirectoryStore) -> int:
    """Returns the clock that stamps files there, in ns."""
    if not store.keep:
        return 0
    probe = store.folder / "clock"
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.utime(fd)
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)


@dataclass
class _Change:
    """What happened to one thing that was shown: written in place, moved, or gone (`found` None)."""

    row: Shown
    found: Found | None = None

    @property
    def is_move(self) -> bool:
        return self.found is not None and self.found.path != self.row.path


def scan(store: DirectoryStore, merge: MergeContents | None = None, hot: set[bytes] | None = None,
         tell: Callable[[str], None] = lambda path: None) -> ScanReport:  # fmt: skip
    """Looks at the directory and writes down what its user did since; `tell` gets paths that a delete elsewhere did not remove."""
    seen = walk(store, hot or set())
    with store.transaction():
        return _Scan(store, seen).write(merge, tell)


class _Scan:
    def __init__(self, store: DirectoryStore, seen: Walk) -> None:
        self.store, self.seen = store, seen
        self.touched: set[str] = set()
        self.files: set[str] = set()
        self.counted = {"created": 0, "written": 0, "renamed": 0, "deleted": 0}
        self.wants: dict[bytes, Version | None] = dict(store.wanted())
        #: What `shown` is to say when all is explained; until then it says what the user saw.
        self.rows: dict[bytes, Shown] = {}
        self.dropped: set[bytes] = set()

    def write(self, merge: MergeContents | None, tell: Callable[[str], None]) -> ScanReport:
        store, seen = self.store, self.seen
        store.keep_shown(seen.same)
        new = [found for found in seen.new if not self._adopt(found)]
        changed = [found for found in seen.changed if not self._adopt(found)]
        changes = self._moves(new)
        moved = {id(change.found) for change in changes}
        changes += [_Change(row, found) for found in changed if (row := store.shown_at(found.path)) is not None]
        changes += [_Change(row) for row in seen.gone.values()]
        by_id: dict[str, list[_Change]] = {}
        for change in changes:
            by_id.setdefault(change.row.id, []).append(change)
        while by_id:
            _, together = by_id.popitem()
            self._explain(together, by_id)
        self._create([found for found in new if id(found) not in moved])
        store.drop_shown(self.dropped)
        store.keep_shown(self.rows.values())
        merged, kept = reconcile(store, sorted(self.files), merge)
        for path in kept:
            tell(path)
        plan(store, with_folders(self.touched | merged))
        return ScanReport(seen.entries, seen.hashed, **self.counted, skipped=tuple(seen.skipped), ignored=tuple(seen.ignored))

    def _adopt(self, found: Found) -> bool:
        """Returns whether it is what was to be placed there, in a placement that was not recorded."""
        wanted = self.wants.get(found.path)
        holds = entry(wanted) if wanted is not None else None
        if wanted is None or holds is None or not holds.alike(found.holds) or holds.mode != found.holds.mode:
            return False
        self.store.keep_shown([Shown(found.path, wanted.id, holds.kind, holds.mode, holds.data, found.stat)])
        self.store.run("DELETE FROM want WHERE path = ?", [(found.path,)])
        return True

    def _moves(self, new: list[Found]) -> list[_Change]:
        """Finds new paths that are old files, by number, or else by content where only one file has it."""
        gone = self.seen.gone
        by_number = {(row.kind, row.stat.ino): row for row in gone.values()}
        by_content: dict[str, list[Shown]] = {}
        for row in gone.values():
            if row.kind == "file" and row.stat.size:
                by_content.setdefault(row.data, []).append(row)
        out: list[_Change] = []
        for found in new:
            was = by_number.pop((found.holds.kind, found.stat.ino), None)
            if was is None and found.holds.kind == "file" and len(by_content.get(found.holds.data, ())) == 1:
                was = by_content[found.holds.data][0]
            if was is not None and was.path in gone:
                del gone[was.path]
                out.append(_Change(was, found))
        return out

    def _create(self, found: list[Found]) -> None:
        """Makes versions of new files, each of which has an identity of its own."""
        store = self.store
        if not found:
            return
        number = store.counts.get(store.me, 0)
        items: list[Item] = []
        for k, one in enumerate(sorted(found, key=lambda f: f.path), number + 1):
            made = entry_version((), f"{store.me}/{k}", text(one.path), one.holds)
            items.append(((store.me, k), made))
            self.rows[one.path] = _row(one.path, made, one)
        store.insert(items)
        self.counted["created"] += len(items)
        busy = {text(path) for path in self.wants} | {copy for copy, _ in store.copies()}
        folders = with_folders(v.path for _, v in items) - {v.path for _, v in items}
        crowded = store.paths("SELECT path FROM heads WHERE live GROUP BY path HAVING COUNT(*) > 1")
        self.touched |= folders | {v.path for _, v in items if v.path in crowded or v.path in busy}
        self.touched |= {v.path for _, v in items if kind(v) != "dir" and store.has_below(v.path)}

    def _explain(self, first: list[_Change], rest: dict[str, list[_Change]]) -> None:
        """Makes versions for what happened to one shown head, and to those beside it."""
        store = self.store
        one = store.get(first[0].row.id)
        self.files.add(one.file)
        self.touched.add(one.path)
        if not store.is_head(one.id):
            for change in first:
                self._superseded(change, one)
            return
        beside, seen = self._beside(one)
        changes = list(first)
        for other in beside:
            self.files.add(other.file)
            self.touched.add(other.path)
            changes += rest.pop(other.id, [])
        acted = {change.row.id for change in changes}
        untouched = [v for v in beside if v.id not in acted and store.is_shown(v.id)]
        if len(changes) + len(untouched) == 1:
            self._alone(changes[0], one, tuple(v for group in seen.values() for v in group))
        else:
            self._among(changes, untouched, seen)

    def _superseded(self, change: _Change, was: Version) -> None:
        """Puts a change of what a newer version was about to replace beside that version. Removing it changes nothing."""
        if change.found is None:
            self.dropped.add(change.row.path)
        else:
            self._write(change, (was.id,), was.file, text(change.found.path) if change.is_move else was.path)

    def _beside(self, one: Version) -> tuple[list[Version], dict[str, tuple[str, ...]]]:
        """Returns the heads shown for the same file or path, this one too, and the ids (twins and deletes) that each stands for."""
        store = self.store
        is_dir = kind(one) == "dir"
        found: dict[str, Version] = {}
        deletes: dict[str, list[str]] = {}
        todo = [one]
        while todo:
            v = todo.pop()
            if v.id in found:
                continue
            found[v.id] = v
            for other in (*store.heads_of(v.file), *store.heads_at(v.path)):
                holds = entry(other)
                if holds is None:
                    deletes.setdefault(v.id, []).append(other.id)
                elif (holds.kind == "dir") == is_dir:
                    todo.append(other)
        live = [found[i] for i in sorted(found)]
        shown = [v for v in live if store.is_shown(v.id)]
        stands: dict[str, tuple[str, ...]] = {}
        for v in shown:
            twins = [t for t in live if t.path == v.path and _alike(t, v) and (t.id == v.id or t not in shown)]
            stands[v.id] = tuple(sorted({i for t in twins for i in (t.id, *deletes.get(t.id, ()))}))
        return shown, stands

    def _alone(self, change: _Change, was: Version, parents: tuple[str, ...]) -> None:
        if change.found is None:
            self._delete([change], parents, was)
        else:
            self._write(change, parents, was.file, text(change.found.path) if change.is_move else was.path)

    def _among(self, changes: list[_Change], untouched: list[Version], seen: dict[str, tuple[str, ...]]) -> None:
        """Makes versions for what happened to one of several heads.

        One write merges all heads of its path that were shown there. A removed head goes under a write or a head that stays: of its own
        path, else of its file's other name. A head that was given a name of its own is a file of its own.
        """
        store = self.store
        moves = [c for c in changes if c.is_move]
        writes = [(store.get(c.row.id), c) for c in changes if c.found is not None and not c.is_move]
        removed = [c for c in changes if c.found is None or c.is_move]
        under: dict[str, list[str]] = {}
        paths = [was.path for was, _ in writes]
        for v in untouched:
            if paths.count(v.path) == 1:
                under.setdefault(writes[paths.index(v.path)][0].id, []).extend(seen[v.id])
        survivors = [*(was for was, _ in writes), *(v for v in untouched if paths.count(v.path) != 1)]
        for change in removed:
            path = store.get(change.row.id).path
            if survivors:
                under.setdefault(min(survivors, key=lambda v: v.path != path).id, []).extend(seen[change.row.id])
        for was, change in writes:
            self._write(change, (*seen[was.id], *under.pop(was.id, ())), was.file, was.path)
        for stays in (v for v in untouched if v.id in under):
            made = entry_version(_distinct(tuple(under[stays.id]), seen[stays.id]), stays.file, stays.path, entry(stays))
            store.create(made)
            for row in store.rows("SELECT * FROM shown WHERE id = ?", (stays.id,)):
                self.rows[row[0]] = store.shown_row(row)._replace(id=made.id)
            self.counted["written"] += 1
        if removed and not survivors:
            self._delete(removed, tuple(i for c in removed for i in seen[c.row.id]), store.get(removed[0].row.id))
        self.dropped.update(change.row.path for change in removed)
        self._create([c.found for c in moves if c.found is not None])

    def _write(self, change: _Change, parents: tuple[str, ...], file: str, path: str) -> None:
        found = change.found
        assert found is not None
        made = entry_version(_distinct(parents), file, path, found.holds)
        self.store.create(made)
        self.dropped.add(change.row.path)
        self.rows[found.path] = _row(found.path, made, found)
        self.touched |= {path, text(found.path)}
        self.counted["renamed" if change.is_move else "written"] += 1

    def _delete(self, changes: list[_Change], parents: tuple[str, ...], was: Version) -> None:
        self.store.create(entry_version(_distinct(parents), was.file, was.path, None))
        self.dropped.update(change.row.path for change in changes)
        self.counted["deleted"] += 1


def _alike(a: Version, b: Version) -> bool:
    one, other = entry(a), entry(b)
    return one is not None and other is not None and one.alike(other)


def _distinct(*parents: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for some in parents for i in some))


def _row(path: bytes, made: Version, found: Found) -> Shown:
    holds = found.holds
    return Shown(path, made.id, holds.kind, holds.mode, holds.data, found.stat)
