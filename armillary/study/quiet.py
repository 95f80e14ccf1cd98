"""Keeps the machine to one unit, and notices when something else disturbs it.

A unit that measures holds a lock of the whole machine, whoever runs it, so that two studies take turns. Before it starts, a short spin of
fixed work is timed: against the best such spin so far it tells how much slower the machine is right now.

On Linux the lock is a listening socket in the abstract namespace: there is no file that somebody else could have put there, the kernel
frees it however its holder ends, and tells those who wait which process holds it. Elsewhere it is a locked file in the temporary folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: The lock's name; studies that need not take turns, such as those of a test suite, have another one.
NAME_VARIABLE, NAME = "ARMILLARY_LOCK", "armillary-measures"
SPIN_S = 0.02
NOISY = 1.25
#: After so long somebody else keeps the machine on purpose or for ever; the unit runs then, beside it.
MOST_WAIT_S = 3600.0
_IN_PROCESS = threading.RLock()
_spin_count = 0
_best_spin_s = float("inf")

#: What is said when a process that had to wait gets the machine.
TURN = "the machine is free now"
Say = Callable[[str], None]


def silent(_: str) -> None:
    """Says nothing."""


@contextlib.contextmanager
def exclusive(say: Say = silent, most_wait_s: float = MOST_WAIT_S) -> Iterator[None]:
    """Holds the machine: no other exclusive unit runs on it meanwhile, in this process or another, of this user or another.

    When another process has it, `say` is told so once, with the process's number, and `TURN` at the end of the wait.
    """
    with _IN_PROCESS, (_socket_lock if sys.platform == "linux" else _file_lock)(say, most_wait_s):
        yield


@contextlib.contextmanager
def _socket_lock(say: Say, most_wait_s: float) -> Iterator[None]:
    until, said = time.monotonic() + most_wait_s, False
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with lock:
        while time.monotonic() < until:
            try:
                lock.bind(f"\0{_name()}")
                lock.listen(64)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting, contextlib.suppress(OSError):
                waiting.settimeout(max(0.01, until - time.monotonic()))
                waiting.connect(f"\0{_name()}")
                if not said:
                    said = True
                    say(f"waiting for process {_holder(waiting)}, which is measuring on this machine")
                waiting.recv(1)  # Ends when the holder closes its socket or dies.
            time.sleep(0.01)
        if said:
            say(TURN)
        yield


def _name() -> str:
    return re.sub(r"[^\w.-]", "_", os.environ.get(NAME_VARIABLE, NAME))[:100]


def _holder(waiting: socket.socket) -> int:
    """The process at the other end."""
    found = waiting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])


@contextlib.contextmanager
def _file_lock(say: Say, most_wait_s: float) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"{_name()}.lock"
    until, said = time.monotonic() + most_wait_s, False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if not said:
                    said = True
                    say("waiting for another process, which is measuring on this machine")
                time.sleep(0.05)
        if said:
            say(TURN)
        yield
    finally:
        os.close(handle)


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
