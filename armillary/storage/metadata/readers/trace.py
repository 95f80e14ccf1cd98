"""Operations as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table

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
_ROWS = 100_000_000
#: (client, kind, names of the path, names of the second path, where)
Row = tuple[str, int, list[bytes], list[bytes], str]


def read_trace(path: Path, *, lenient: bool = False) -> Work:
    """Reads a trace `time_s,client,op,path[,path2]`. Paths that are used before they are created are loaded first.

    An operation on a path that was removed, or that could never have existed, is an error with its line, or is counted if `lenient`.
    """
    rows = list(_rows(path))
    builder = WorkBuilder()
    paths = Paths(builder)
    made: set[bytes] = set()
    # Every path that is used before it is created must have existed before.
    for _, kind, names, other, _ in rows:
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
    for client, kind, names, other, where in rows:
        number = clients.setdefault(client, len(clients)) % CLIENTS
        problem = _apply(builder, paths, kind, names, other, number)
        if problem:
            if not lenient:
                raise InputError(f'{KINDS[kind]} "{one_line(os.fsdecode(b"/".join(names)), 120)}": {problem}', where=where)
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


def _rows(path: Path) -> Iterator[Row]:
    if "path" not in column_names(path):
        raise InputError("found no column path; expected time_s,client,op,path[,path2]", where=str(path))
    table = read_table(path, COLUMNS, row_limit=_ROWS)
    paths = Paths(WorkBuilder())
    columns = (table[name].tolist() for name in ("client", "op", "path", "path2"))
    for row, (client, op, name, other) in enumerate(zip(*columns, strict=True)):
        where = str(table.error(row, "").where)
        kind = KINDS.index(op)
        names = paths.parts(os.fsencode(name), where)
        if not names and kind not in (READDIR, READDIRPLUS):
            raise table.error(row, "found the root; expected a file or directory below it", "path")
        others = paths.parts(os.fsencode(other), where)
        if kind == RENAME and not others:
            raise table.error(row, "found nothing; expected the new path", "path2")
        yield client, kind, names, others, where
