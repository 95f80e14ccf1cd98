"""Trees of the directory tests: what lies below a root, without its state."""

from __future__ import annotations

import os
import stat
from pathlib import Path

STATE = ".armillary-sync"


def tree(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Everything below a root but its state: kind, permissions, content."""
    out: dict[bytes, tuple[str, int, bytes]] = {}
    base = os.fsencode(root)
    for folder, folders, files in os.walk(base):
        if folder == base and os.fsencode(STATE) in folders:
            folders.remove(os.fsencode(STATE))
        for name in (*folders, *files):
            full = os.path.join(folder, name)
            st = os.lstat(full)
            path = os.path.relpath(full, base)
            if stat.S_ISLNK(st.st_mode):
                out[path] = ("link", 0, os.readlink(full))
            elif stat.S_ISDIR(st.st_mode):
                out[path] = ("dir", st.st_mode & 0o777, b"")
            elif stat.S_ISREG(st.st_mode):
                out[path] = ("file", st.st_mode & 0o777, Path(os.fsdecode(full)).read_bytes())
    return out


def contents(root: Path) -> list[bytes]:
    """The contents of all files, sorted."""
    return sorted(data for kind, _, data in tree(root).values() if kind == "file")
