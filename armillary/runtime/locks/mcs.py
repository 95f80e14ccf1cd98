"""MCS lock: a queue of nodes, each thread waiting on its own.

A thread puts its node at the tail of the lock's queue by an exchange, tells its predecessor's node where it is, and waits for its own flag.
The release clears the flag of the next node. If there is none yet, it takes the tail back by a compare-and-swap, or waits until the one
who has just come has linked itself.

Mellor-Crummey and Scott, Algorithms for scalable synchronization on shared-memory multiprocessors, 1991.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, cas, load, store, unlike, until, xchg
from .threads.places import LINE_WORDS, Places, places
from .threads.waiting import waiting

_NONE, _ONE = np.uint64(0), np.uint64(1)


@dataclass(frozen=True)
class Mcs(Lock):
    """MCS lock (1991)."""

    holds_many: ClassVar[bool] = False
    space: ClassVar[Space] = Space(8, 16)

    def described(self) -> Description:
        """The lock in steps."""
        return Description(_acquire, _release, {"tail": "lock", "after": "thread", "waits": "thread"})

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie: a thread's link is the first word of its own, and its flag lies a line further."""
        return places(locks, threads, words_of_a_lock=1, parks=policy == "park", held=held, pad=pad, words_of_a_thread=2 * LINE_WORDS)


def _acquire(me: Any, lock: int) -> Steps:
    mine = me.id + 1
    yield store("after", me.id, 0)
    before = yield xchg("tail", lock, mine, doorway=True)
    if before != 0:
        yield store("waits", me.id, 1)
        yield store("after", before - 1, mine)
        yield until("waits", me.id, 0)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    heir = yield load("after", me.id)
    if heir == 0:
        was = yield cas("tail", lock, token, 0)
        if was != token:
            heir = yield unlike("after", me.id, 0)
            yield store("waits", heir - 1, 0)
    else:
        yield store("waits", heir - 1, 0)


@functools.cache
def _compiled(policy: str) -> Compiled:
    unlike, until, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        own = at.threads + me * at.thread_stride
        mine = np.uint64(me) + _ONE
        atomics.store(words, own, _NONE)
        before = atomics.xchg(words, lock * at.lock_stride, mine)
        if before != _NONE:
            atomics.store(words, own + LINE_WORDS, _ONE)
            publish(words, at.threads + np.int64(before - _ONE) * at.thread_stride, mine)
            until(words, own + LINE_WORDS, _NONE)
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        own = at.threads + me * at.thread_stride
        heir = atomics.load(words, own)
        if heir == _NONE:
            if atomics.cas(words, lock * at.lock_stride, token, _NONE) == token:
                return
            heir = unlike(words, own, _NONE)
        publish(words, at.threads + np.int64(heir - _ONE) * at.thread_stride + LINE_WORDS, _NONE)

    return Compiled(acquire, release)
