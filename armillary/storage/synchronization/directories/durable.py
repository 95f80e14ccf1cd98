"""Writes that outlive the process, and with `flush` a loss of power; a place to stop between any two of them."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Called after every write that outlives a kill of the process. Tests end the process here.
after_write: Callable[[], None] = lambda: None  # noqa: E731


def wrote() -> None:
    """Says that something was written for good."""
    after_write()


def flush(folder: Path) -> None:
    """Puts everything written to the file system of `folder` on the device: data, names and permissions."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = _library()
        if library is None or library.syncfs(fd) != 0:
            os.sync()
    finally:
        os.close(fd)


def flush_one(path: Path) -> None:
    """Puts one file or directory on the device."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "syncfs") else None
