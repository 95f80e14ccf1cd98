"""Which heads lie at which paths, which is the same on every replica that has the same versions.

At a path the directory comes first, then the head with the lowest id; other contents lie beside it as `name~conflict-<id8>`. Heads that
hold the same are shown once. A delete shows nothing, so an edit outlives a delete made beside it. Two heads of a file of which one was
renamed and the other edited become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ..replicas.versions import Version
from .entries import Entry, above, conflict_name, entry, entry_version, raw
from .store import DirectoryStore

T = TypeVar("T")
#: Lines of base, ours and theirs to lines, or None where they clash.
MergeContents = Callable[[Version, Version, Version], "Entry | None"]


def reconcile(store: DirectoryStore, files: Iterable[str], merge: MergeContents | None = None) -> tuple[set[str], list[str]]:
    """Merges what merges cleanly in these files: (paths touched, paths of files that were deleted on one side and changed on the other)."""
    touched: set[str] = set()
    kept: list[str] = []
    split = {file for (file,) in store.rows("SELECT file FROM splits")}
    for file in files:
        heads = store.heads_of(file)
        live = [v for v in heads if entry(v) is not None]
        if len(live) == 2 and (merged := _merged(store, live[0], live[1], merge)) is not None:
            store.create(merged)
            touched.update(v.path for v in (*live, merged))
            live = [merged]
        elif live and len(live) < len(heads):
            kept.append(live[0].path)
        if len({v.path for v in live}) > 1:
            store.run("INSERT OR IGNORE INTO splits VALUES (?)", [(file,)])
        elif file in split:
            store.run("DELETE FROM splits WHERE file = ?", [(file,)])
    return touched, kept


def _merged(store: DirectoryStore, a: Version, b: Version, merge: MergeContents | None) -> Version | None:
    """Returns the version above both, where name, content and permissions each changed on one side only."""
    mine, theirs = entry(a), entry(b)
    assert mine is not None
    assert theirs is not None
    if a.path == b.path and mine.alike(theirs):
        return None
    base = common_ancestor(store, a, b)
    was = entry(base) if base is not None else None
    if base is None or was is None or not mine.kind == theirs.kind == was.kind:
        return None
    path, mode = _one_changed(base.path, a.path, b.path), _one_changed(was.mode, mine.mode, theirs.mode)
    held = _one_changed((was.data, was.size), (mine.data, mine.size), (theirs.data, theirs.size))
    if held is None and merge is not None and mine.kind == "file":
        made = merge(base, a, b)
        held = None if made is None else (made.data, made.size)
    if path is None or mode is None or held is None:
        return None
    return entry_version((a.id, b.id), a.file, path, Entry(mine.kind, mode, held[1], held[0]))


def _one_changed(base: T, a: T, b: T) -> T | None:
    if a in (base, b):
        return b
    return a if b == base else None


def common_ancestor(store: DirectoryStore, a: Version, b: Version) -> Version | None:
    """Returns the latest common ancestor, or one of several that hold the same under one name."""
    known: dict[str, Version] = {}
    common = _ancestors(store, a, known) & _ancestors(store, b, known)
    tips = [known[i] for i in sorted(common - {p for i in common for p in known[i].parents})]
    if not tips or len({(v.path, entry(v)) for v in tips}) > 1:
        return None
    return tips[0]


def _ancestors(store: DirectoryStore, one: Version, known: dict[str, Version]) -> set[str]:
    seen: set[str] = set()
    todo = [one.id]
    while todo:
        id = todo.pop()
        if id not in seen:
            seen.add(id)
            if id not in known:
                known[id] = store.get(id)
            todo.extend(known[id].parents)
    return seen


def with_folders(paths: Iterable[str]) -> set[str]:
    """Returns these paths and all directories they lie in."""
    out = set(paths)
    for path in list(out):
        out.update(above(path))
    return out


def plan(store: DirectoryStore, paths: Iterable[str]) -> None:
    """Writes down what should lie at these paths where it is not what lies there."""
    paths = set(paths)
    copies_of: dict[str, set[str]] = {}
    for copy, base in store.copies():
        copies_of.setdefault(base, set()).add(copy)
        if copy in paths:
            paths.add(base)
    wanted: dict[bytes, str | None] = {}
    for path in sorted(paths):
        desired = _desired(store, path)
        here = raw(path)
        copies = copies_of.get(path, set())
        for name in ({path} | copies) - desired.keys():
            row = store.shown_at(name)
            if row is not None and row.kind == "dir" and name == path and store.has_below(path):
                # It stays for what lies in it; the next scan finds it as a new directory.
                store.drop_shown([here])
                row = None
            if row is not None:
                wanted[raw(name)] = None
            else:
                store.run("DELETE FROM want WHERE path = ?", [(raw(name),)])
        for name, one in desired.items():
            row = store.shown_at(name)
            holds = entry(one)
            assert holds is not None
            if row is not None and row.id != one.id and row.mode == holds.mode and row.entry.alike(holds):
                store.keep_shown([row._replace(id=one.id)])
            if row is None or row.mode != holds.mode or not row.entry.alike(holds):
                wanted[raw(name)] = one.id
            else:
                wanted.pop(raw(name), None)
                store.run("DELETE FROM want WHERE path = ?", [(raw(name),)])
        extra = desired.keys() - {path}
        if extra != copies:
            store.run("DELETE FROM copies WHERE base = ?", [(here,)])
            store.run("INSERT OR REPLACE INTO copies VALUES (?, ?)", [(raw(name), here) for name in sorted(extra)])
    store.run("INSERT OR REPLACE INTO want VALUES (?, ?)", wanted.items())


def _desired(store: DirectoryStore, path: str) -> dict[str, Version]:
    """Returns what to show for the heads at a path, by name."""
    contents: dict[tuple[str, str], Version] = {}
    for one in store.heads_at(path):
        holds = entry(one)
        assert holds is not None
        contents.setdefault((holds.kind, holds.data), one)
    ranked = sorted(contents.items(), key=lambda item: (item[0][0] != "dir", item[1].id))
    out: dict[str, Version] = {}
    taken = bool(ranked) and ranked[0][0][0] != "dir" and store.has_below(path)
    for k, (_, one) in enumerate(ranked):
        name, digits = path, 8
        if k or taken:
            name = conflict_name(path, one.id, digits)
            while store.heads_at(name):
                digits += 4
                name = conflict_name(path, one.id, digits)
        out[name] = one
    return out
