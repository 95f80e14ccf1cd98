"""Ticket lock: draw a number, wait until it is served.

One word gives out numbers and another one shows whose turn it is. All who wait look at the second word, so each release takes it from as
many caches as threads wait, and each of them fetches it again: the traffic of one acquire grows with the number of threads.

Mellor-Crummey and Scott, Algorithms for scalable synchronization on shared-memory multiprocessors, 1991; the idea is from 1979.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Exponent, Kind
from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import Description, Steps, add, load, store, until
from .threads.waiting import waiting

_ONE = np.uint64(1)


@dataclass(frozen=True)
class Ticket(Lock):
    """Ticket lock (1991)."""

    lock_words: ClassVar[int] = 2
    space: ClassVar[Space] = Space(16, 0)
    claims = (
        Claim(
            "coherence_per_acquire", by=Exponent("threads", at_least=0.7), on=Kind("scaling"), source="our reading",
            says="the traffic of one acquire grows with the number of threads",
        ),
    )  # fmt: skip

    def described(self) -> Description:
        """The lock in steps."""
        return Description(_acquire, _release, {"next": "lock", "serving": "lock"})

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)


def _acquire(me: Any, lock: int) -> Steps:
    mine = yield add("next", lock, 1, doorway=True)
    serving = yield load("serving", lock)
    if serving != mine:
        yield until("serving", lock, mine)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    yield store("serving", lock, token + 1)


@functools.cache
def _compiled(policy: str) -> Compiled:
    _, until, publish, _ = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        serving = lock * at.lock_stride + at.word_stride
        mine = atomics.add(words, lock * at.lock_stride, _ONE)
        if atomics.load(words, serving) != mine:
            until(words, serving, mine)
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        publish(words, lock * at.lock_stride + at.word_stride, token + _ONE)

    return Compiled(acquire, release)
