"""The steps of which a lock is made, as its generators yield them.

A description is two Python generators, `acquire(me, lock)` and `release(me, lock, token)`. Each step on shared memory is one `yield`:

    def acquire(me, lock):
        mine = yield add("next", lock, 1, doorway=True)
        serving = yield load("serving", lock)
        if serving != mine:
            yield until("serving", lock, mine)
        return mine

`me` holds what is the thread's own: its number `me.id`, the description's constants, and whatever the generators keep there from one
episode to the next. What `acquire` returns is given to `release`. `doorway` marks the step that decides the order of admission.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

Steps = Generator["Step", int, Any]
#: How many words a region has, by the word that a description gives for it.
SIZES: dict[str, Callable[[int, int, int], int]] = {
    "lock": lambda threads, locks, slots: locks,
    "thread": lambda threads, locks, slots: threads,
    "slot": lambda threads, locks, slots: slots,
    "node": lambda threads, locks, slots: threads + locks,
    "one": lambda threads, locks, slots: 1,
}
MASK = (1 << 64) - 1
#: The multiplier of Fibonacci hashing, 2⁶⁴ over the golden ratio.
SPREAD = 0x9E3779B97F4A7C15
MOST_SLOTS = 4096


class Step(NamedTuple):
    """One step on shared memory: which word, and the values that it needs."""

    kind: str
    region: str = ""
    place: int = 0
    value: int = 0
    expected: int = 0
    doorway: bool = False


def load(region: str, index: int = 0, *, doorway: bool = False) -> Step:
    """Reads a word."""
    return Step("load", region, index, doorway=doorway)


def store(region: str, index: int, value: int) -> Step:
    """Writes a word, after everything before it (release)."""
    return Step("store", region, index, value)


def xchg(region: str, index: int, value: int, *, doorway: bool = False) -> Step:
    """Writes a word and gives what stood there."""
    return Step("xchg", region, index, value, doorway=doorway)


def add(region: str, index: int, value: int, *, doorway: bool = False) -> Step:
    """Adds to a word and gives what stood there before."""
    return Step("add", region, index, value, doorway=doorway)


def cas(region: str, index: int, expected: int, value: int) -> Step:
    """Writes a word if `expected` stands there; gives what stood there."""
    return Step("cas", region, index, value, expected)


def unlike(region: str, index: int, value: int) -> Step:
    """Reads a word again and again while it holds this value; gives the other one."""
    return Step("unlike", region, index, value)


def until(region: str, index: int, value: int) -> Step:
    """Reads a word again and again until it holds this value."""
    return Step("until", region, index, value)


def rest(pauses: int) -> Step:
    """Does nothing for that many pauses of the core."""
    return Step("rest", value=pauses)


def slot(value: int, slots: int) -> int:
    """Where a value's waiters look: the high 12 bits of its product with 2⁶⁴ over the golden ratio, in as many slots as there are."""
    return ((value * SPREAD & MASK) >> 52) & (slots - 1)


@dataclass(frozen=True)
class Description:
    """A lock in steps.

    `words` says of each region of shared memory how many words it has: one per `lock`, `thread`, `slot` of the waiting array or `node`
    (one per thread and lock), or just `one`. `start` gives words that are not 0 at first, for so many threads and locks, and `own` what
    each thread keeps for itself, by its number. `constants` are names under `me` that never change. With `fifo`, entries come in the order
    of the doorway.
    """

    acquire: Callable[..., Any]
    release: Callable[..., Any]
    words: Mapping[str, str]
    fifo: bool = True
    slots: int = 1
    constants: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    start: Callable[[int, int], Mapping[tuple[str, int], int]] = lambda threads, locks: {}
    #: Regions of which several words share a cache line.
    packed: tuple[str, ...] = ()

    def with_small_values(self, threads: int, episodes: int) -> Description:
        """The same lock, whose values stay small in so many episodes of so many threads.

        Blocks of values are no larger than the episodes need, because a thread that never needs a second block cannot tell how large its
        first one was. The numbers of two locks are no further `apart` than all acquires together, so none of them meet either.
        """
        most = {"block": episodes, "apart": threads * episodes + 2}
        return replace(self, constants={name: min(value, most.get(name, value)) for name, value in self.constants.items()})

    def regions(self, threads: int, locks: int) -> dict[str, tuple[int, int]]:
        """Each region's first word and number of words, in one memory."""
        found, first = {}, 0
        for name, size in self.words.items():
            words = SIZES[size](threads, locks, self.slots)
            found[name] = first, words
            first += words
        return found

    def thread(self, number: int) -> SimpleNamespace:
        """The `me` of a thread, with which the generators can be run as they are."""
        own = {name: value(number) for name, value in self.own.items()}
        return SimpleNamespace(id=number, **own, **self.constants)
