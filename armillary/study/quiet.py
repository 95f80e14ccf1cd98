"""Keeps the machine to one unit, and notices when something else disturbs it.

A unit that measures holds a lock of the whole machine, so two studies take turns. Before it starts, a short spin of fixed work is
timed: against the best such spin so far it tells how much slower the machine is right now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SPIN_S = 0.02
NOISY = 1.25
_IN_PROCESS = threading.RLock()
_spin_count = 0
_best_spin_s = float("inf")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Holds the machine: no other exclusive unit runs on it meanwhile, in this process or another."""
    with _IN_PROCESS, lock_file().open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_file() -> Path:
    """The file that exclusive units lock, in the user's runtime folder."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder and os.access(folder, os.W_OK):
        return Path(folder) / "armillary.lock"
    return Path(tempfile.gettempdir()) / f"armillary-{os.getuid()}.lock"


def slowdown() -> float:
    """How much slower the machine is now than at its best since this process started: 1.0 is undisturbed."""
    global _spin_count, _best_spin_s
    if _spin_count == 0:
        _spin_count = round(100_000 * SPIN_S / min(_spin(100_000) for _ in range(3)))
        _best_spin_s = min(_spin(_spin_count) for _ in range(3))
    now = _spin(_spin_count)
    _best_spin_s = min(_best_spin_s, now)
    return now / _best_spin_s


def _spin(count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        pass
    return time.perf_counter() - start
