"""Reciprocating lock: arrivals pile up in a stack, and a whole stack at a time is let in, the last comer first.

A thread exchanges its number into the lock and learns who came just before it; that one is its heir, unless it is where the segment that
is being let in ends. It waits at its own gate, through which it is told where that end is. The release opens the heir's gate. The last one
of a segment takes the arrivals as the next segment, or, if there are none, frees the lock. Nobody is overtaken by the same thread twice,
but the order is not first come, first served.

Dice and Kogan, Reciprocating locks, PPoPP 2025.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, cas, store, unlike, xchg
from .threads.places import LINE_WORDS, Places, places
from .threads.waiting import waiting

#: Nobody holds the lock; it is held and nobody has arrived since. A thread's number comes after these.
_NONE, _EMPTY, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)


@dataclass(frozen=True)
class Reciprocating(Lock):
    """Reciprocating lock (2025)."""

    fifo: ClassVar[bool] = False
    holds_many: ClassVar[bool] = False
    space: ClassVar[Space] = Space(8, 24)

    def described(self) -> Description:
        """The lock in steps."""
        own = {"heir": lambda number: 0, "end": lambda number: 0}
        return Description(_acquire, _release, {"arrivals": "lock", "gate": "thread"}, fifo=False, own=own)

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie: heir and end are the first words of a thread's own, and its gate lies a line further."""
        return places(locks, threads, words_of_a_lock=1, parks=policy == "park", held=held, pad=pad, words_of_a_thread=2 * LINE_WORDS)


def _acquire(me: Any, lock: int) -> Steps:
    mine = me.id + 2
    yield store("gate", me.id, 0)
    me.heir = 0
    me.end = mine
    before = yield xchg("arrivals", lock, mine, doorway=True)
    if before != 0:
        if before != 1:
            me.heir = before
        me.end = yield unlike("gate", me.id, 0)
        if me.heir == me.end:
            me.heir = 0
            me.end = 1
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    if me.heir != 0:
        yield store("gate", me.heir - 2, me.end)
    else:
        was = yield cas("arrivals", lock, me.end, 0)
        if was != me.end:
            last = yield xchg("arrivals", lock, 1)
            yield store("gate", last - 2, me.end)


@functools.cache
def _compiled(policy: str) -> Compiled:
    unlike, _, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        own = at.threads + me * at.thread_stride
        mine = np.uint64(me) + _TWO
        heir, end = _NONE, mine
        atomics.store(words, own + LINE_WORDS, _NONE)
        before = atomics.xchg(words, lock * at.lock_stride, mine)
        if before != _NONE:
            if before != _EMPTY:
                heir = before
            end = unlike(words, own + LINE_WORDS, _NONE)
            if heir == end:
                heir, end = _NONE, _EMPTY
        words[own] = heir
        words[own + 1] = end
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        own = at.threads + me * at.thread_stride
        heir, end = words[own], words[own + 1]
        if heir == _NONE:
            if atomics.cas(words, lock * at.lock_stride, end, _NONE) == end:
                return
            heir = atomics.xchg(words, lock * at.lock_stride, _EMPTY)
        publish(words, at.threads + np.int64(heir - _TWO) * at.thread_stride + LINE_WORDS, end)

    return Compiled(acquire, release)
