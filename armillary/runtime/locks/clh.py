"""CLH lock: a queue in which each thread waits on its predecessor's node and then takes that node over.

A thread marks its node as busy, exchanges it for the tail, and waits until the node that it got is no longer busy. The release clears
its own node, which the successor watches, and keeps the predecessor's for its next acquire. So nodes wander between threads.

Craig, Building FIFO and priority-queuing spin locks from atomic swap, 1993; Magnusson, Landin and Hagersten, 1994.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, store, until, xchg
from .threads.places import Places, Words, places
from .threads.waiting import waiting

_NONE, _ONE = np.uint64(0), np.uint64(1)


@dataclass(frozen=True)
class Clh(Lock):
    """CLH lock (1993)."""

    holds_many: ClassVar[bool] = False
    #: The lock's word and the node that every lock needs besides those of the threads.
    space: ClassVar[Space] = Space(16, 16)

    def described(self) -> Description:
        """The lock in steps."""
        return Description(
            _acquire, _release, {"tail": "lock", "busy": "node"}, own={"node": lambda number: number},
            start=lambda threads, locks: {("tail", lock): threads + lock for lock in range(locks)},
        )  # fmt: skip

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie; the nodes stand where other locks have the waiting array."""
        return places(locks, threads, words_of_a_lock=1, slots=threads + locks, parks=policy == "park", held=held, pad=pad)

    def prepare(self, words: Words, at: Places) -> None:
        """Gives each thread and each lock a node."""
        for lock in range(at.lock_count):
            words[lock * at.lock_stride] = at.thread_count + lock
        for thread in range(at.thread_count):
            words[at.threads + thread * at.thread_stride] = thread


def _acquire(me: Any, lock: int) -> Steps:
    yield store("busy", me.node, 1)
    before = yield xchg("tail", lock, me.node, doorway=True)
    yield until("busy", before, 0)
    return before


def _release(me: Any, lock: int, token: int) -> Steps:
    mine = me.node
    me.node = token
    yield store("busy", mine, 0)


@functools.cache
def _compiled(policy: str) -> Compiled:
    _, until, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        mine = words[at.threads + me * at.thread_stride]
        atomics.store(words, at.array + np.int64(mine) * at.slot_stride, _ONE)
        before = atomics.xchg(words, lock * at.lock_stride, mine)
        until(words, at.array + np.int64(before) * at.slot_stride, _NONE)
        return before

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        own = at.threads + me * at.thread_stride
        mine = words[own]
        words[own] = token
        publish(words, at.array + np.int64(mine) * at.slot_stride, _NONE)

    return Compiled(acquire, release)
