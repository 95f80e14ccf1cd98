"""Operations as a table."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table

from ..workload import CLIENTS, CREATE, KINDS, MKDIR, READDIR, READDIRPLUS, RENAME, RMDIR, UNLINK, Work, WorkBuilder
from .paths import Paths

COLUMNS = (
    Column("time_s", "time", not_decreasing=True),
    Column("client", "str"),
    Column("op", "str", choices=KINDS),
    # An empty path is the root.
    Column("path", "str", default="", strip=False),
    Column("path2", "str", default="", strip=False),
)
#: Most operations of a trace. Each takes 64 bytes here, besides its paths.
MOST_ROWS = 20_000_000


def read_trace(path: Path, *, lenient: bool = False) -> Work:
    """Reads a trace `time_s,client,op,path[,path2]`. Paths that are used before they are created are loaded first.

    An operation on a path that was removed, or that could never have existed, is an error with its line, or is counted if `lenient`.
    """
    if "path" not in column_names(path):
        raise InputError("found no column path; expected time_s,client,op,path[,path2]", where=str(path))
    table = read_table(path, COLUMNS, row_limit=MOST_ROWS)
    builder = WorkBuilder()
    paths = Paths(builder)
    # Every path is taken apart once, at the line where it occurs first.
    first, firsts = _parts(table, "path", paths)
    second, seconds = _parts(table, "path2", paths)
    kinds, kind_names = table.numbered("op")
    kinds = np.array([KINDS.index(name) for name in kind_names], np.int64)[kinds] if table.rows else kinds
    clients = table.numbered("client")[0]
    _check_paths(table, kinds, np.array([bool(p) for p in firsts], bool)[first], np.array([bool(p) for p in seconds], bool)[second])
    made: set[bytes] = set()
    # Every path that is used before it is created must have existed before.
    for kind, one, two in zip(kinds.tolist(), first.tolist(), second.tolist(), strict=True):
        names, other = firsts[one], seconds[two]
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
    for row, (kind, one, two) in enumerate(zip(kinds.tolist(), first.tolist(), second.tolist(), strict=True)):
        names = firsts[one]
        problem = _apply(builder, paths, kind, names, seconds[two], int(clients[row]) % CLIENTS)
        if problem:
            if not lenient:
                raise table.error(row, f'{KINDS[kind]} "{one_line(os.fsdecode(b"/".join(names)), 120)}": {problem}')
            builder.missing += 1
    return builder.build(str(path))


def _apply(builder: WorkBuilder, paths: Paths, kind: int, names: list[bytes], other: list[bytes], client: int) -> str:
    """Adds an operation, or says why it is impossible."""
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


def _parts(table: Table, column: str, paths: Paths) -> tuple[np.ndarray, list[list[bytes]]]:
    """Returns the number of each row's path, and the names of each path."""
    numbers, found = table.numbered(column)
    rows = np.unique(numbers, return_index=True)[1]
    return numbers, [paths.parts(os.fsencode(text), str(table.error(int(row), "").where)) for text, row in zip(found, rows, strict=True)]


def _check_paths(table: Table, kinds: np.ndarray, has_first: np.ndarray, has_second: np.ndarray) -> None:
    at_root = ~has_first & ~np.isin(kinds, (READDIR, READDIRPLUS))
    if at_root.any():
        raise table.error(int(np.argmax(at_root)), "found the root; expected a file or directory below it", "path")
    to_nothing = (kinds == RENAME) & ~has_second
    if to_nothing.any():
        raise table.error(int(np.argmax(to_nothing)), "found nothing; expected the new path", "path2")
