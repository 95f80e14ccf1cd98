"""How the files of a store are opened: regular files that lie in the store's own folder, and no links.

A store may come from a stranger. A link in it would let an update, or the replay of one that was interrupted, write into a file outside
the store, so links are refused before anything is read. A file with a second name (a hard link) is refused for writing only, because
backups are often made of hard links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from armillary.errors import InputError


def check_regular(found: os.stat_result, where: str, *, writing: bool) -> None:
    """Raises InputError for a link, a device or a FIFO, and for a file with a second name if it is to be written."""
    if not stat.S_ISREG(found.st_mode):
        raise InputError("found a link or a special file; expected a regular file of the store", where=where)
    if writing and found.st_nlink > 1:
        raise InputError("found a file with a second name (a hard link); expected a file that belongs to the store alone", where=where)


def open_folder(path: Path) -> int:
    """A descriptor of a folder that is no link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"found {error.strerror}; expected the folder of a store", where=str(path)) from None


def open_regular(folder: int | None, name: str, flags: int, where: str) -> int:
    """A descriptor of the regular file `name` in a folder given by its descriptor, or at that path; a link is not followed."""
    try:
        file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"found {error.strerror}; expected a regular file of the store", where=where) from None
    try:
        check_regular(os.fstat(file), where, writing=bool(flags & (os.O_WRONLY | os.O_RDWR)))
    except InputError:
        os.close(file)
        raise
    return file
