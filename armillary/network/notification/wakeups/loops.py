"""Two threads that wake each other in turn: the loops, compiled and without the interpreter's lock.

Each function is one side of `exchanges` round trips and returns 0, or another number when the other side failed. `first` says whether this
side begins.
"""

# Inside compiled code an intrinsic takes one argument less than its definition.
# mypy: disable-error-code="call-arg,var-annotated"

from __future__ import annotations

from armillary.kernels import kernel
from armillary.network.notification.wakeups.atomics import c_read, c_syscall, c_write, load_acquire, pause, store_release

#: Spins without an answer after which the other side is taken to be gone; a blocked side of a dead thread is woken by the caller.
_PATIENCE = 4_000_000_000
_FUTEX_WAIT, _FUTEX_WAKE = 0 | 128, 1 | 128


@kernel
def poll(mine: int, theirs: int, exchanges: int, begin: int, first: bool) -> int:
    """Each side spins on its own word until the other has stored the number of the exchange."""
    for turn in range(begin + 1, begin + exchanges + 1):
        if first:
            store_release(theirs, turn)
        spins = 0
        while load_acquire(mine) < turn:
            pause()
            spins += 1
            if spins > _PATIENCE:
                return 1
        if not first:
            store_release(theirs, turn)
    return 0


@kernel
def files(mine: int, theirs: int, buffer: int, size: int, exchanges: int, first: bool) -> int:
    """Each side reads its own file, which blocks, and writes the other's: pipes and eventfds."""
    for _ in range(exchanges):
        if first and c_write(theirs, buffer, 8) != 8:
            return 1
        if c_read(mine, buffer + 8, size) != size:
            return 2
        if not first and c_write(theirs, buffer, 8) != 8:
            return 1
    return 0


@kernel
def futex(mine: int, theirs: int, number: int, exchanges: int, begin: int, first: bool) -> int:
    """Each side sleeps in the kernel until its word has changed, and wakes the other after changing the other's."""
    for turn in range(begin + 1, begin + exchanges + 1):
        if first:
            store_release(theirs, turn)
            c_syscall(number, theirs, _FUTEX_WAKE, 1, 0)
        seen = load_acquire(mine)
        while seen < turn:
            c_syscall(number, mine, _FUTEX_WAIT, seen, 0)
            seen = load_acquire(mine)
        if not first:
            store_release(theirs, turn)
            c_syscall(number, theirs, _FUTEX_WAKE, 1, 0)
    return 0


@kernel
def signals(mine: int, other: int, process: int, signal: int, number: int, buffer: int, exchanges: int, first: bool) -> int:
    """Each side reads its signalfd, which blocks, and sends the signal to the other thread."""
    for _ in range(exchanges):
        if first and c_syscall(number, process, other, signal, 0) != 0:
            return 1
        if c_read(mine, buffer, 128) != 128:
            return 2
        if not first and c_syscall(number, process, other, signal, 0) != 0:
            return 1
    return 0


