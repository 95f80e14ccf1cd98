"""Hapax lock: every episode draws a value that is never used again, and waits until the lock shows that its predecessor's has departed.

A thread that arrives exchanges its value into `arrive` and so learns its predecessor's. If `depart` shows that one, it is in. Otherwise
it looks at the slot of a waiting array, shared by all locks, to which the predecessor's value is hashed: a release writes its value to
`depart` and then to its own value's slot, which takes the line from those who wait there, normally one thread. Order is first come, first
served, nothing is allocated, no pointer changes hands, and a release is two stores.

Why it is safe: only one successor waits for a value, and `depart` keeps the value until that successor itself departs, so it cannot be
missed; and because values are never used again, an old one cannot be taken for a new one. Two values in one slot make a waiter look at
`depart` once more than it had to. The slot is read before `depart`: in the other order, a release between the two reads is slept through.

A thread takes 65,536 values with one fetch-and-add and hands them out itself. The hash, the size of the array and the word in which the
holder keeps its value are our design.

Hapax Locks: Value-Based Mutual Exclusion, arXiv 2511.14608 (PPoPP 2026).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Exponent, Gain, InputError, Kind, Level, parameter
from armillary.kernels import atomics, part

from .description.lock import Compiled, Lock, Space
from .description.steps import MOST_SLOTS, SPREAD, Description, Steps, add, load, slot, store, unlike, xchg
from .threads.places import Places, places
from .threads.waiting import waiting

_NONE, _ONE, _SPREAD, _SHIFT = np.uint64(0), np.uint64(1), np.uint64(SPREAD), np.uint64(52)
#: The number of blocks of 2¹⁶ values, after which values would come back.
_LAST_BLOCK = np.uint64(1 << 47)
QUEUES = ("ticket", "twa", "mcs", "clh", "hemlock", "reciprocating")
#: Locks that keep no order at all, or the kernel's.
UNORDERED = ("ttas", "pthread", "pylock")
WHY = "the published comparison is on machines of dozens of cores; a fifth slower than the best still counts as comparable"


@dataclass(frozen=True)
class Hapax(Lock):
    """Hapax lock."""

    slots: int = parameter(4096, "slots of the waiting array, a power of two", range=(1, MOST_SLOTS))
    pad: bool = parameter(True, "a line of 128 bytes for each slot (512 KiB) rather than 8 slots on a line")
    block: int = parameter(1 << 16, "values that a thread takes at a time", range=(1, 1 << 16))

    lock_words: ClassVar[int] = 2
    space: ClassVar[Space] = Space(16, 16)
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "acquires_per_s", over=QUEUES, by=Gain(ratio=(1.0, None)), on=(Kind("max-contention"), Kind("moderate")), honest=(0.87, None),
            why=WHY, source="abstract", says="its throughput is comparable with that of the best locks, on this machine's cores",
        ),
        Claim(
            "acquires_simulated_per_s", over=QUEUES, by=Gain(ratio=(1.0, None)), on=Kind("many-cores"), honest=(0.83, None),
            why=WHY, source="abstract", says="its throughput is comparable with that of the best locks, at 16 to 128 threads",
        ),
        Claim(
            "acquires_per_s", over=(*QUEUES, "hapax-vw", *UNORDERED), by=Gain(ratio=(1.0, None)),
            on=(Kind("max-contention"), Kind("moderate")), honest=(0.87, None), why=WHY, source="our design",
            says="its throughput comes near that of the fastest of all locks, also of those that keep no order, on this machine's cores",
        ),
        Claim(
            "acquires_simulated_per_s", over=(*QUEUES, "hapax-vw", "ttas"), by=Gain(ratio=(1.0, None)), on=Kind("many-cores"),
            honest=(0.83, None), why=WHY, source="our design",
            says="its throughput comes near that of the fastest of all locks, also of those that keep no order, at 16 to 128 threads",
        ),
        Claim(
            "coherence_per_acquire", by=Exponent("threads", at_most=0.1), on=Kind("scaling"), source="abstract",
            says="the coherence traffic of one acquire does not depend on the number of threads",
        ),
        Claim(
            "uncontended_ns", over="ticket", by=Gain(ratio=(1.0, None)), on=Kind("uncontended"), honest=(0.95, None), source="abstract",
            why="a twentieth is what two runs on one machine differ by", says="without contention it is not slower than a ticket lock",
        ),
        Claim("bytes_lock", by=Level(at_most=16), on=Kind("simulated"), source="abstract", says="a lock is two words"),
        Claim(
            "acquires_per_s", over="pthread", by=Gain(ratio=(1.0, None)), on=Kind("max-contention"), source="our design",
            says="at full contention it is at least as fast as the C library's mutex",
        ),
    )  # fmt: skip

    def validate(self) -> None:
        """Slots are a power of two."""
        if self.slots & (self.slots - 1):
            raise InputError(f"hapax.slots: found {self.slots}; expected a power of two")

    def occupies(self) -> Space:
        """The process has the waiting array and the counter of blocks."""
        return self.space._replace(process=8 * self.slots + 8)

    def described(self) -> Description:
        """The lock in steps."""
        return described(self, _acquire, _release)

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads."""
        return _compiled(policy)

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie."""
        parks = policy == "park"
        return places(
            locks, threads, words_of_a_lock=2, slots=self.slots, pad_slots=self.pad, parks=parks, held=held, pad=pad, block=self.block
        )  # fmt: skip


def described(lock: Any, acquire: Any, release: Any) -> Description:
    """A lock of this family in steps: its words, its slots and its blocks of values."""
    words = {"arrive": "lock", "depart": "lock", "blocks": "one", "array": "slot"}
    own = {"next": lambda number: 0, "end": lambda number: 0}
    constants = {"slots": lock.slots, "block": lock.block}
    packed = () if lock.pad else ("array",)
    return Description(acquire, release, words, slots=lock.slots, constants=constants, own=own, packed=packed)


def draw(me: Any) -> Steps:
    """The next value of this thread; the first is 1."""
    if me.next == me.end:
        taken = yield add("blocks", 0, 1)
        me.next = taken * me.block
        me.end = me.next + me.block
    me.next = me.next + 1
    return me.next


def _acquire(me: Any, lock: int) -> Steps:
    mine = yield from draw(me)
    before = yield xchg("arrive", lock, mine, doorway=True)
    departed = yield load("depart", lock)
    if departed != before:
        place = slot(before, me.slots)
        while True:
            seen = yield load("array", place)
            departed = yield load("depart", lock)
            if departed == before:
                break
            yield unlike("array", place, seen)
    return mine


def _release(me: Any, lock: int, token: int) -> Steps:
    yield store("depart", lock, token)
    yield store("array", slot(token, me.slots), token)


@part
def drawn(words, at, me):  # type: ignore[no-untyped-def]
    """The next value of this thread; the first is 1."""
    own = at.threads + me * at.thread_stride
    value = words[own]
    if value == words[own + 1]:
        taken = atomics.add(words, at.counter, _ONE)
        if taken >= _LAST_BLOCK:
            raise OverflowError("all values are used up")
        value = taken * np.uint64(at.block)
        words[own + 1] = value + np.uint64(at.block)
    value += _ONE
    words[own] = value
    return value


@part
def slot_of(at, value):  # type: ignore[no-untyped-def]
    """The word of a value's slot."""
    return at.array + (np.int64((value * _SPREAD) >> _SHIFT) & at.slot_mask) * at.slot_stride


@functools.cache
def compiled_wait(policy: str) -> Any:
    """The part that waits until a value has departed."""
    unlike, _, _, _ = waiting(policy)

    @part
    def wait(words, at, lock, before):  # type: ignore[no-untyped-def]
        depart = lock * at.lock_stride + at.word_stride
        if atomics.load(words, depart) == before:
            return
        place = slot_of(at, before)
        while True:
            seen = atomics.load(words, place)
            if atomics.load(words, depart) == before:
                return
            unlike(words, place, seen)

    return wait


@functools.cache
def _compiled(policy: str) -> Compiled:
    _, _, publish, _ = waiting(policy)
    wait = compiled_wait(policy)

    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        mine = drawn(words, at, me)
        wait(words, at, lock, atomics.xchg(words, lock * at.lock_stride, mine))
        return mine

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        atomics.store(words, lock * at.lock_stride + at.word_stride, token)
        publish(words, slot_of(at, token), token)

    return Compiled(acquire, release)


@functools.cache
def compiled_try() -> Any:
    """The part that lets a thread in if nobody is inside or waits; gives its value, or 0."""

    @part
    def attempt(words, at, me, lock):  # type: ignore[no-untyped-def]
        arrive = lock * at.lock_stride
        last = atomics.load(words, arrive)
        if atomics.load(words, arrive + at.word_stride) != last:
            return _NONE
        mine = drawn(words, at, me)
        return mine if atomics.cas(words, arrive, last, mine) == last else _NONE

    return attempt
