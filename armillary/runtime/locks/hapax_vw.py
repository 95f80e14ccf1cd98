"""Hapax lock with visible waiters: a waiter says in its slot whom it waits for, and is let in through that slot alone.

A waiter claims its predecessor's slot by a compare-and-swap from 0, looks at `depart` once more, and then watches the slot only. The
release writes `depart`, and if the slot of its value holds that value, clears it: the heir enters without fetching `depart`. A waiter
whose slot is taken by another one's value watches `depart`. A waiter that sees `depart` first clears its slot itself.

Here the release writes and then reads, while the waiter writes the slot and then reads `depart`. With a plain store the processor may read
the slot before `depart` is visible, both miss each other, and the waiter sleeps for ever. So `depart` is written by an exchange. Under
sequential consistency the fault cannot be seen; the checker finds it with one store buffer per thread.

The abstract names an expedited handover; this form of it is our reading.

Hapax Locks: Value-Based Mutual Exclusion, arXiv 2511.14608 (PPoPP 2026).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind
from armillary.kernels import atomics, part

from .description.lock import Compiled
from .description.steps import Description, Steps, cas, load, slot, unlike, until, xchg
from .hapax import Hapax, described, draw, drawn, slot_of
from .threads.waiting import waiting

_NONE = np.uint64(0)


@dataclass(frozen=True)
class HapaxVw(Hapax):
    """Hapax lock with visible waiters."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "handover_ns", over="hapax", by=Gain(ratio=(1.0, None)), on=Kind("many-cores"), source="our reading",
            says="a waiter that is seen is let in sooner",
        ),
    )  # fmt: skip

    def described(self) -> Description:
        """The lock in steps."""
        return described(self, _acquire, _release)

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)


def _acquire(me: Any, lock: int) -> Steps:
    mine = yield from draw(me)
    before = yield xchg("arrive", lock, mine, doorway=True)
    departed = yield load("depart", lock)
    if departed != before:
        place = slot(before, me.slots)
        taken = yield cas("array", place, 0, before)
        if taken == 0:
            departed = yield load("depart", lock)
            if departed == before:
                yield cas("array", place, before, 0)
            else:
                yield unlike("array", place, before)
        else:
            yield until("depart", lock, before)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    place = slot(token, me.slots)
    yield xchg("depart", lock, token)
    waiter = yield load("array", place)
    if waiter == token:
        yield cas("array", place, token, 0)


@functools.cache
def _compiled(policy: str) -> Compiled:
    unlike, until, _, wake = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        arrive = lock * at.lock_stride
        depart = arrive + at.word_stride
        mine = drawn(words, at, me)
        before = atomics.xchg(words, arrive, mine)
        if atomics.load(words, depart) != before:
            place = slot_of(at, before)
            if atomics.cas(words, place, _NONE, before) != _NONE:
                until(words, depart, before)
            elif atomics.load_seq_cst(words, depart) == before:
                atomics.cas(words, place, before, _NONE)
            else:
                unlike(words, place, before)
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        depart = lock * at.lock_stride + at.word_stride
        place = slot_of(at, token)
        atomics.store_seq_cst(words, depart, token)
        wake(words, depart)
        if atomics.load_seq_cst(words, place) == token:
            atomics.cas(words, place, token, _NONE)
            wake(words, place)

    return Compiled(acquire, release)
