"""The directory tests share a round between two directories, and a look at what lies below a root without its state."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from armillary.storage.synchronization.directories import SyncReport, sync

STATE = ".armillary-sync"


def tree(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Returns kind, permissions and content of everything below a root but its state."""
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
    """Returns the contents of all files, sorted."""
    return sorted(data for kind, _, data in tree(root).values() if kind == "file")


def both(pair: tuple[Path, Path], **how: object) -> SyncReport:
    """Synchronises; both trees must be equal afterwards, and a second time there must be nothing left to do."""
    report = sync(*pair, durable=False, **how)  # type: ignore[arg-type]
    assert tree(pair[0]) == tree(pair[1])
    sync(*pair, durable=False)
    again = sync(*pair, durable=False)
    assert (again.to_left, again.to_right, again.transactions) == ((), (), 0)
    assert again.status == report.status
    return report
