"""Hemlock: a queue without nodes, in which each thread has one word for all locks that it holds.

The lock is a tail of thread numbers. A thread waits until its predecessor's word names the lock, and clears it. The release takes the tail
back by a compare-and-swap, or writes the lock's number to its own word and waits until the heir has cleared it, so that the word is free.

Dice and Kogan, Hemlock: compact and scalable mutual exclusion, 2021.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, cas, store, until, xchg
from .threads.waiting import waiting

_NONE, _ONE = np.uint64(0), np.uint64(1)


@dataclass(frozen=True)
class Hemlock(Lock):
    """Hemlock (2021)."""

    space: ClassVar[Space] = Space(8, 8)

    def described(self) -> Description:
        """The lock in steps."""
        return Description(_acquire, _release, {"tail": "lock", "grant": "thread"})

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)


def _acquire(me: Any, lock: int) -> Steps:
    mine = me.id + 1
    before = yield xchg("tail", lock, mine, doorway=True)
    if before != 0:
        yield until("grant", before - 1, lock + 1)
        yield store("grant", before - 1, 0)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    was = yield cas("tail", lock, token, 0)
    if was != token:
        yield store("grant", me.id, lock + 1)
        yield until("grant", me.id, 0)


@functools.cache
def _compiled(policy: str) -> Compiled:
    _, until, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        mine = np.uint64(me) + _ONE
        before = atomics.xchg(words, lock * at.lock_stride, mine)
        if before != _NONE:
            grant = at.threads + np.int64(before - _ONE) * at.thread_stride
            until(words, grant, np.uint64(lock) + _ONE)
            publish(words, grant, _NONE)
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        if atomics.cas(words, lock * at.lock_stride, token, _NONE) != token:
            grant = at.threads + me * at.thread_stride
            publish(words, grant, np.uint64(lock) + _ONE)
            until(words, grant, _NONE)

    return Compiled(acquire, release)
