"""Trees and operations from files: `find -printf` output, a folder, a trace of operations, an mdtest command line."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line, unknown

from .workload import (
    CLIENTS,
    CREATE,
    KINDS,
    MKDIR,
    OPEN,
    READDIR,
    READDIRPLUS,
    RENAME,
    RMDIR,
    ROOT,
    SETATTR,
    STAT,
    UNLINK,
    Work,
    WorkBuilder,
    check_name,
)  # fmt: skip

COLUMNS = ("time_s", "client", "op", "path")
#: Most items that an mdtest description may ask for.
MOST_ITEMS = 100_000_000


def read_work(path: Path, *, ops: int = 100_000, lenient: bool = False) -> Work:
    """The work in a file, by its name: a folder, .csv or .parquet (a trace), .mdtest (a command line), anything else `find` output."""
    if path.is_dir():
        return with_mixture(scanned(path), ops, str(path))
    if path.suffix in (".csv", ".parquet"):
        return read_trace(path, lenient=lenient)
    if path.suffix == ".mdtest":
        return read_mdtest(path)
    return with_mixture(read_find(path), ops, str(path))


def read_find(path: Path) -> Iterator[tuple[bytes, bool, int, int, int, str]]:
    """(path, directory?, size, mode, mtime in ns, where) of each line of `find ROOT -printf '%y\\t%p\\t%s\\t%m\\t%T@\\n'`."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            if not line.strip(b"\r\n"):
                continue
            # A name may hold tabs, so the path is what the other four leave.
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) < 5:
                raise InputError(f"found {len(fields) - 1} tabs; expected 4 (type, path, size, mode, time)", where=where)
            kind, name = fields[0], b"\t".join(fields[1:-3])
            if len(kind) != 1 or kind not in b"fdlpscbD":
                raise InputError(
                    f'found type "{one_line(kind.decode(errors="replace"), 20)}"; expected one letter of fdlpscbD', where=where
                )
            size, mode, when = (text.decode("ascii", errors="replace") for text in fields[-3:])
            if not size.isdecimal() or len(size) > 18:
                raise InputError(f'size: found "{one_line(size, 40)}"; expected bytes', where=where)
            try:
                bits, seconds = int(mode, 8), float(when)
            except ValueError:
                raise InputError(
                    f'found mode "{one_line(mode, 20)}" and time "{one_line(when, 40)}"; expected octal and seconds', where=where
                ) from None
            if not 0 <= bits < 2**32 or not math.isfinite(seconds) or abs(seconds) > 1e11:
                raise InputError(
                    f'found mode "{one_line(mode, 20)}" and time "{one_line(when, 40)}"; expected octal and seconds', where=where
                )
            yield name, kind == b"d", int(size), bits, int(seconds * 1e9), where


def scanned(root: Path) -> Iterator[tuple[bytes, bool, int, int, int, str]]:
    """The same of a folder that is here; links are not followed."""
    todo = [os.fsencode(root)]
    while todo:
        folder = todo.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
                is_directory = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            path = os.path.relpath(entry.path, os.fsencode(root))
            yield path, is_directory, found.st_size, found.st_mode, found.st_mtime_ns, os.fsdecode(entry.path)
            if is_directory:
                todo.append(entry.path)


class _Paths:
    """Paths resolved against the tree that a builder has so far; what is missing above a path is made."""

    def __init__(self, builder: WorkBuilder) -> None:
        self.builder = builder
        self._known: dict[bytes, int] = {b"": ROOT}

    def parts(self, path: bytes, where: str) -> list[bytes]:
        """The names of a path."""
        names = [name for name in path.split(b"/") if name not in (b"", b".")]
        for name in names:
            check_name(name, where=where)
        return names

    def resolve(self, names: list[bytes], *, make: bool) -> int | None:
        """The directory that these names lead to, or None."""
        at = ROOT
        for name in names:
            child = self.builder.find(at, name)
            if child is None:
                if not make:
                    return None
                child = self.builder.add(MKDIR, at, name, mode=0o40755)
            elif not self.builder.is_directory(child):
                return None
            at = child
        return at


def with_mixture(tree: Iterable[tuple[bytes, bool, int, int, int, str]], ops: int, label: str) -> Work:
    """A tree that is loaded, and then `ops` operations of the mixture on it: popularity of directories Zipf 0.9, of files Zipf 0.6."""
    builder = WorkBuilder()
    paths = _Paths(builder)
    files: dict[int, list[bytes]] = {}
    client = 0
    for path, is_directory, size, mode, mtime, where in tree:
        names = paths.parts(path, where)
        if not names:
            continue
        home = paths.resolve(names[:-1], make=True)
        if home is None:
            raise InputError("found a file where the path has a directory", where=where)
        known = builder.find(home, names[-1])
        if known is not None:
            if is_directory and builder.is_directory(known):
                continue
            raise InputError("found the path twice", where=where)
        client += 1
        builder.add(MKDIR if is_directory else CREATE, home, names[-1], mode=mode, size=size, mtime=mtime, client=client)
        if not is_directory:
            files.setdefault(home, []).append(names[-1])
    if not files:
        raise InputError("found no files; expected a tree with some", where=label)
    builder.load_ends()
    rng = np.random.default_rng(20250902)
    homes = list(files)
    weights = (1 + np.arange(len(homes))) ** -0.9
    chosen = rng.permutation(len(homes))[np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(ops)).clip(0, len(homes) - 1)]
    kinds = rng.choice([STAT, OPEN, READDIRPLUS, CREATE, UNLINK, SETATTR], size=ops, p=[0.55, 0.2, 0.1, 0.08, 0.05, 0.02])
    draws = rng.random(ops)
    for i, (d, kind, draw) in enumerate(zip(chosen.tolist(), kinds.tolist(), draws.tolist(), strict=True)):
        home = homes[d]
        names = files[home]
        if kind == READDIRPLUS:
            builder.add(kind, home, client=i)
            continue
        if kind == CREATE or not names:
            names.append(b"new.%08d" % i)
            builder.add(CREATE, home, names[-1], client=i)
            continue
        k = min(len(names) - 1, int(len(names) * draw**2.5))
        builder.add(kind, home, names[k], client=i)
        if kind == UNLINK:
            names[k] = names[-1]
            names.pop()
    return builder.build(label)


def read_trace(path: Path, *, lenient: bool = False) -> Work:
    """A trace `time_s,client,op,path[,path2]` (CSV or Parquet). Paths that are used before they are made existed before: they are loaded.

    An operation on a path that was removed, or never could have been there, is an error with its line, or counted (`lenient`).
    """
    rows = list(_trace_rows(path))
    builder = WorkBuilder()
    paths = _Paths(builder)
    made: set[bytes] = set()
    # First what must have been there before: every path that is used before it is created.
    for _, _, kind, names, other, _ in rows:
        key = b"/".join(names)
        if kind in (CREATE, MKDIR):
            made.add(key)
        elif names and key not in made:
            home = paths.resolve(names[:-1], make=True)
            made.add(key)
            if home is not None and builder.find(home, names[-1]) is None:
                builder.add(MKDIR if kind in (READDIR, READDIRPLUS, RMDIR) else CREATE, home, names[-1])
        if kind in (CREATE, MKDIR) and len(names) > 1 and b"/".join(names[:-1]) not in made:
            paths.resolve(names[:-1], make=True)
            made.add(b"/".join(names[:-1]))
        if kind == RENAME:
            made.add(b"/".join(other))
            if len(other) > 1 and b"/".join(other[:-1]) not in made:
                paths.resolve(other[:-1], make=True)
    builder.load_ends()
    clients: dict[str, int] = {}
    for _, client, kind, names, other, where in rows:
        number = clients.setdefault(client, len(clients)) % CLIENTS
        problem = _apply(builder, paths, kind, names, other, number)
        if problem:
            if not lenient:
                raise InputError(f'{KINDS[kind]} "{one_line(os.fsdecode(b"/".join(names)), 120)}": {problem}', where=where)
            builder.missing += 1
    return builder.build(str(path))


def _apply(builder: WorkBuilder, paths: _Paths, kind: int, names: list[bytes], other: list[bytes], client: int) -> str:
    """Adds an operation; what speaks against it, or an empty string."""
    if kind in (READDIR, READDIRPLUS):
        directory = paths.resolve(names, make=False)
        if directory is None:
            return "no such directory"
        builder.add(kind, directory, client=client)
        return ""
    home = paths.resolve(names[:-1], make=False) if names else None
    if home is None:
        return "no such directory"
    child = builder.find(home, names[-1])
    if kind in (CREATE, MKDIR):
        if child is not None:
            return "exists already"
    elif child is None:
        return "no such file"
    elif (kind == UNLINK) == builder.is_directory(child) and kind in (UNLINK, RMDIR):
        return "is a directory" if kind == UNLINK else "is no directory"
    elif kind == RMDIR and builder.children(child):
        return "is not empty"
    to = None
    if kind == RENAME:
        target_home = paths.resolve(other[:-1], make=False) if other else None
        if target_home is None:
            return "its new directory does not exist"
        assert child is not None
        target = builder.find(target_home, other[-1])
        if target is not None and builder.is_directory(target) != builder.is_directory(child):
            return "its new name is taken by another kind"
        if target is not None and builder.is_directory(target) and target != child and builder.children(target):
            return "its new name is a directory that is not empty"
        if builder.is_directory(child) and other[: len(names)] == names and other != names:
            return "into itself"
        to = (target_home, other[-1])
    builder.add(kind, home, names[-1], to=to, client=client, mode=0o40755 if kind == MKDIR else 0o100644)
    return ""


def _trace_rows(path: Path) -> Iterator[tuple[float, str, int, list[bytes], list[bytes], str]]:
    import polars as pl

    try:
        if path.suffix == ".parquet":
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=False)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise InputError(one_line(str(error).split("\n")[0], 160), where=str(path)) from None
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(f"found no column {', '.join(missing)}; expected time_s,client,op,path[,path2]", where=str(path))
    if not len(frame):
        raise InputError("found no operations; expected at least one", where=str(path))
    second = frame["path2"].to_list() if "path2" in frame.columns else [None] * len(frame)
    before = -math.inf
    builder = _Paths(WorkBuilder())
    offset = 2 if path.suffix == ".csv" else 1
    columns = (frame[name].to_list() for name in COLUMNS)
    for i, (time_s, client, op, name, other) in enumerate(zip(*columns, second, strict=True)):
        where = f"{path}:{i + offset}"
        at = _seconds(time_s, where)
        if at < before:
            raise InputError(f'column "time_s": found {at:g} after {before:g}; expected seconds that do not decrease', where=where)
        before = at
        if op not in KINDS:
            raise unknown("op", str(op), KINDS, where=where)
        kind = KINDS.index(op)
        names = builder.parts(os.fsencode(str(name or "")), where)
        if not names and kind not in (READDIR, READDIRPLUS):
            raise InputError('column "path": found the root; expected a file or directory below it', where=where)
        others = builder.parts(os.fsencode(str(other or "")), where)
        if kind == RENAME and not others:
            raise InputError('column "path2": found nothing; expected the new path', where=where)
        yield at, str(client), kind, names, others, where


def _seconds(value: Any, where: str) -> float:
    try:
        at = float(value)
    except (TypeError, ValueError):
        at = math.nan
    if not math.isfinite(at):
        raise InputError(f'column "time_s": found "{one_line(str(value), 40)}"; expected seconds', where=where)
    return at


def read_mdtest(path: Path) -> Work:
    """mdtest's command line in a file: -n items, or -I items a directory, -z depth, -b branch."""
    from .generate import mdtest

    text = path.read_bytes()[:4096].decode(errors="replace")
    values = {"-n": 0, "-I": 0, "-z": 0, "-b": 1}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"found {error}; expected an mdtest command line", where=str(path)) from None
    words = words[1:] if words and words[0].endswith("mdtest") else words
    i = 0
    while i < len(words):
        if words[i] not in values:
            raise unknown("option", words[i], values, where=str(path))
        if i + 1 >= len(words) or not words[i + 1].isdecimal() or len(words[i + 1]) > 9:
            raise InputError(
                f'{words[i]}: found "{one_line(words[i + 1], 40) if i + 1 < len(words) else ""}"; expected a whole number', where=str(path)
            )
        values[words[i]] = int(words[i + 1])
        i += 2
    depth, branch = values["-z"], values["-b"]
    if depth > 20 or branch < 1 or branch**depth > MOST_ITEMS:
        raise InputError(f"-z {depth} -b {branch}; expected at most {MOST_ITEMS} directories", where=str(path))
    directories = sum(branch**level for level in range(1, depth + 1)) or 1
    items = values["-n"] or values["-I"] * directories
    if not 1 <= items <= MOST_ITEMS:
        raise InputError(f"found {items} items; expected 1 to {MOST_ITEMS} (-n, or -I for each directory)", where=str(path))
    return mdtest(np.random.default_rng(1), items, depth=depth, branch=branch)
