"""`LockRecorder`: notes who asks for a Python program's locks and when, in the table that the arena replays.

    recorder = LockRecorder()
    guard = recorder.wrap(threading.Lock())     # in place of the lock, wherever the program uses it
    ...
    recorder.write("locks.csv")

A use costs about a microsecond more than without. A thread that holds one lock while it asks for another is replayed as one that uses them
one after the other.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from armillary.errors import InputError
from armillary.runtime.locks.readers.traces import MOST_ROWS
from armillary.runtime.locks.simulation.machine import MOST_CORES

HEAD = "thread,lock,arrive_ns,hold_ns"


class LockRecorder:
    """Notes the uses of every lock that it has wrapped, up to `most` of them by up to 256 threads; `left_out` counts the others.

    Two threads of which one began after the other had ended may have the same number.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        if not 1 <= most <= MOST_ROWS:
            raise InputError(f"found {most} uses at most; expected 1 to {MOST_ROWS:,}, which is what a trace may have")
        self.most = most
        self.left_out = 0
        self._began = time.perf_counter_ns()
        self._uses: list[tuple[int, int, int, int]] = []
        self._threads: dict[int, int] = {}
        self._locks = 0
        # Taken for a row or a number, never while anybody waits for a lock of the program's.
        self._own = threading.Lock()

    def wrap(self, lock: Any) -> RecordedLock:
        """The lock in a form that notes its uses; it has `acquire`, `release` and `locked`, and goes with `with`."""
        with self._own:
            number = self._locks
            self._locks += 1
        return RecordedLock(lock, self, number)

    def write(self, path: str | Path) -> Path:
        """Writes the table, sorted by arrival, and says where."""
        with self._own:
            rows = sorted(self._uses, key=lambda use: use[2])
        Path(path).write_text("\n".join([HEAD, *(",".join(map(str, row)) for row in rows)]) + "\n")
        return Path(path)

    def _note(self, lock: int, arrived: int, entered: int, left: int) -> None:
        ident = threading.get_ident()
        with self._own:
            if len(self._uses) >= self.most or (ident not in self._threads and len(self._threads) >= MOST_CORES):
                self.left_out += 1
                return
            thread = self._threads.setdefault(ident, len(self._threads))
            self._uses.append((thread, lock, arrived - self._began, left - entered))


class RecordedLock:
    """A lock of the caller's that notes each time when a thread came, and how long it was inside."""

    def __init__(self, lock: Any, recorder: LockRecorder, number: int) -> None:
        self._lock, self._recorder, self._number = lock, recorder, number
        # Written and read only by the thread that is inside.
        self._arrived = self._entered = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As the lock's own; an acquire that fails is not noted."""
        arrived = time.perf_counter_ns()
        if not self._lock.acquire(blocking, timeout):
            return False
        self._arrived, self._entered = arrived, time.perf_counter_ns()
        return True

    def release(self) -> None:
        """As the lock's own."""
        arrived, entered = self._arrived, self._entered
        left = time.perf_counter_ns()
        self._lock.release()
        self._recorder._note(self._number, arrived, entered, left)

    def locked(self) -> bool:
        """As the lock's own."""
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
