"""Test-and-test-and-set with exponential backoff: wait until the lock looks free, try to take it, and rest longer after each failure.

Nobody queues, so whoever still has the line in its cache is likely to get the lock again. That is fast on few cores and unfair, and a
thread may wait without any bound.

Rudolph and Segall, 1984; backoff: Anderson, The performance of spin lock alternatives for shared-memory multiprocessors, 1990.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, load, rest, store, until, xchg
from .threads.waiting import waiting

LEAST_PAUSES, MOST_PAUSES = 8, 4096
_NONE, _ONE = np.uint64(0), np.uint64(1)


@dataclass(frozen=True)
class Ttas(Lock):
    """Test-and-test-and-set with exponential backoff (1990)."""

    fifo: ClassVar[bool] = False
    space: ClassVar[Space] = Space(8, 0)

    def described(self) -> Description:
        """The lock in steps."""
        return Description(_acquire, _release, {"held": "lock"}, fifo=False)

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)


def _acquire(me: Any, lock: int) -> Steps:
    pauses = LEAST_PAUSES
    held = yield load("held", lock, doorway=True)
    while True:
        if held != 0:
            yield until("held", lock, 0)
        held = yield xchg("held", lock, 1)
        if held == 0:
            break
        yield rest(pauses)
        if pauses < MOST_PAUSES:
            pauses = pauses + pauses
    return 1


def _release(me: Any, lock: int, token: int) -> Steps:
    yield store("held", lock, 0)


@functools.cache
def _compiled(policy: str) -> Compiled:
    _, until, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        where = lock * at.lock_stride
        pauses = LEAST_PAUSES
        held = atomics.load(words, where)
        while True:
            if held != _NONE:
                until(words, where, _NONE)
            held = atomics.xchg(words, where, _ONE)
            if held == _NONE:
                return _ONE
            for _ in range(pauses):
                atomics.pause()
            if pauses < MOST_PAUSES:
                pauses += pauses

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        publish(words, lock * at.lock_stride, _NONE)

    return Compiled(acquire, release)
