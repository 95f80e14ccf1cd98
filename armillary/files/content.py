"""Checks that a user's file can be read, and computes a digest of its content, before a reader opens it."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from pathlib import Path

from armillary.errors import InputError

from .opening import kind_of, open_file


def check_readable(path: Path, *, folder: bool = False, where: str | None = None) -> os.stat_result:
    """The facts about a regular file, or with `folder` about a folder too; anything else is refused without opening it.

    A FIFO would be waited on for ever, and a device has no end.
    """
    where = str(path) if where is None else where
    try:
        facts = path.stat()
    except FileNotFoundError:
        raise InputError("no such file", where=where) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read ({getattr(error, 'strerror', None) or error})", where=where) from None
    if stat.S_ISDIR(facts.st_mode):
        if folder:
            return facts
        raise InputError("found a folder; expected a file", where=where)
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(f"found {kind_of(facts.st_mode)}; expected a regular file", where=where)
    if not os.access(path, os.R_OK):
        raise InputError("cannot be read (permission denied)", where=where)
    return facts


def file_digest(path: Path) -> str:
    """Hex SHA-256 over a file's bytes; computed again when its time, size or inode changed."""
    facts = check_readable(path)
    return _file_digest(path, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)


def content_digest(path: Path) -> str:
    """Hex SHA-256 of a file's bytes; of a folder, over the names, kinds, sizes, times and link targets of everything below it."""
    return folder_digest(path) if path.is_dir() else file_digest(path)


def folder_digest(folder: Path) -> str:
    """Hex SHA-256 over the relative names, kinds, sizes, modification times and link targets of everything below a folder."""
    digest = hashlib.sha256()
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(base, name)
            try:
                facts = os.lstat(path)
                target = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else ""
            except OSError as error:
                raise InputError(f"cannot be read ({error.strerror})", where=path) from None
            size = (facts.st_size, facts.st_mtime_ns) if stat.S_ISREG(facts.st_mode) else ()
            line = (os.path.relpath(path, folder), stat.S_IFMT(facts.st_mode), size, target)
            digest.update(repr(line).encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _file_digest(path: Path, modified_ns: int, changed_ns: int, size: int, inode: int) -> str:
    with open_file(path, limit=None, unpack=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
