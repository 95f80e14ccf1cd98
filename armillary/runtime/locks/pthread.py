"""The C library's mutex: a compare-and-swap where nobody waits, the kernel's futex where somebody does.

Who waits sleeps at once, so threads may outnumber cores, and a wake-up costs microseconds. It is called from the same compiled loop as the
other locks. Order is not first come, first served: a thread that runs may overtake one that is being woken.

Franke, Russell and Kirkwood, Fuss, futexes and furwocks: fast userlevel locking in Linux, 2002.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .threads.places import Places, places

_NONE = np.uint64(0)
MUTEX_WORDS = 5


@dataclass(frozen=True)
class Pthread(Lock):
    """pthread_mutex of the C library (2002)."""

    fifo: ClassVar[bool] = False
    takes: ClassVar[frozenset[str]] = frozenset({"real"})
    space: ClassVar[Space] = Space(40, 0)

    def described(self) -> None:
        """Nothing: the kernel takes part."""

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads, which sleep whatever the policy."""
        return _compiled()

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie: a mutex is five of them, on one line."""
        return places(locks, threads, words_of_a_lock=1 if pad else MUTEX_WORDS, held=held, pad=pad)._replace(held=MUTEX_WORDS)


@functools.cache
def _compiled() -> Compiled:
    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        atomics.mutex_lock(words, lock * at.lock_stride)
        return _NONE

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        atomics.mutex_unlock(words, lock * at.lock_stride)

    return Compiled(acquire, release)
