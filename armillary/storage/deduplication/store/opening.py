"""Checks what a store's folder holds before anything in it is opened, as `armillary.files.stores` opens it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from armillary.errors import InputError
from armillary.files.stores import check_regular

#: What a store's folder may hold; the two endings are SQLite's.
FILES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.sqlite-journal", "lock")
FOLDER = "containers"


def check_folder(path: Path, *, writing: bool) -> None:
    """Raises InputError unless everything in a store's folder that this package opens is a regular file or a folder of its own."""
    for name in FILES:
        try:
            found = os.lstat(path / name)
        except FileNotFoundError:
            continue
        check_regular(found, str(path / name), writing=writing)
    try:
        found = os.lstat(path / FOLDER)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise InputError("found a link or a file; expected a folder", where=str(path / FOLDER))
