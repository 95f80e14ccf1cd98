"""Ticket lock with a waiting array: only the next in line watches the word that shows whose turn it is.

Numbers are drawn as in a ticket lock. A waiter that is more than one behind watches a slot of an array that all locks share, found by
hashing the lock and its number. The release serves the next number and adds 1 to the slot of the one after that, who then moves on to the
word itself. So a release takes lines from two waiters, not from all.

Dice and Kogan, TWA: ticket locks augmented with a waiting array, 2019.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import InputError, parameter
from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import MOST_SLOTS, Description, Steps, add, load, slot, store, unlike, until
from .hapax import slot_of
from .threads.places import Places, places
from .threads.waiting import waiting

_ONE, _TWO = np.uint64(1), np.uint64(2)
#: Moves the numbers of one lock away from those of the next.
APART = 65_599
_APART = np.uint64(APART)


@dataclass(frozen=True)
class Twa(Lock):
    """Ticket lock with a waiting array (2019)."""

    slots: int = parameter(4096, "slots of the waiting array, a power of two", range=(1, MOST_SLOTS))
    pad: bool = parameter(True, "a line of 128 bytes for each slot rather than 8 slots on a line")

    lock_words: ClassVar[int] = 2
    space: ClassVar[Space] = Space(16, 0)

    def validate(self) -> None:
        """Slots are a power of two."""
        if self.slots & (self.slots - 1):
            raise InputError(f"twa.slots: found {self.slots}; expected a power of two")

    def occupies(self) -> Space:
        """The process has the waiting array."""
        return self.space._replace(process=8 * self.slots)

    def described(self) -> Description:
        """The lock in steps."""
        words = {"next": "lock", "serving": "lock", "array": "slot"}
        packed = () if self.pad else ("array",)
        return Description(_acquire, _release, words, slots=self.slots, constants={"slots": self.slots, "apart": APART}, packed=packed)

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie."""
        return places(locks, threads, words_of_a_lock=2, slots=self.slots, pad_slots=self.pad, parks=policy == "park", held=held, pad=pad)


def _acquire(me: Any, lock: int) -> Steps:
    mine = yield add("next", lock, 1, doorway=True)
    serving = yield load("serving", lock)
    if serving != mine:
        if mine - serving >= 2:
            place = slot(mine + lock * me.apart, me.slots)
            while True:
                seen = yield load("array", place)
                serving = yield load("serving", lock)
                if mine - serving < 2:
                    break
                yield unlike("array", place, seen)
        yield until("serving", lock, mine)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    yield store("serving", lock, token + 1)
    yield add("array", slot(token + 2 + lock * me.apart, me.slots), 1)


@functools.cache
def _compiled(policy: str) -> Compiled:
    unlike, until, publish, wake = waiting(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        serving = lock * at.lock_stride + at.word_stride
        mine = atomics.add(words, lock * at.lock_stride, _ONE)
        ahead = mine - atomics.load(words, serving)
        if ahead:
            if ahead >= _TWO:
                place = slot_of(at, mine + np.uint64(lock) * _APART)
                while True:
                    seen = atomics.load(words, place)
                    if mine - atomics.load(words, serving) < _TWO:
                        break
                    unlike(words, place, seen)
            until(words, serving, mine)
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        publish(words, lock * at.lock_stride + at.word_stride, token + _ONE)
        place = slot_of(at, token + _TWO + np.uint64(lock) * _APART)
        atomics.add(words, place, _ONE)
        wake(words, place)

    return Compiled(acquire, release)
