"""How a thread waits for a word to change: it spins, it lets others have the core, or it sleeps.

Each policy is four compiled parts. `unlike` waits while a word has a value and gives the next one, `until` waits until it has one;
`publish` writes a word on which others may wait, and `wake` is called after a word was changed in another way. Only sleepers need to be
woken. The word beside the one that they sleep on counts them, so that nobody who waits awake costs a call of the system: a sleeper first
counts itself and then lets the kernel compare the word, and a writer first writes and then looks at the count, both in one order for all
threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.errors import unknown
from armillary.kernels import part
from armillary.kernels.atomics import add, futex_wait, futex_wake, load, load_seq_cst, pause, store, xchg, yield_core

POLICIES = ("spin", "yield", "park")
#: Pauses before a thread gives up its core.
PATIENCE = 1000
#: Most nanoseconds of one sleep: a word whose upper half alone changed looks the same to the kernel.
NAP_NS = 20_000_000
_ONE, _LESS_ONE, _NONE = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)


class Waiting(NamedTuple):
    """The four parts of a policy."""

    unlike: Any
    until: Any
    publish: Any
    wake: Any


def waiting(policy: str) -> Waiting:
    """The parts of a policy: spin, yield or park."""
    if policy not in POLICIES:
        raise unknown("wait policy", policy, POLICIES)
    return {"spin": _SPIN, "yield": _YIELD, "park": _PARK}[policy]


@part
def _spin_unlike(words, index, value):  # type: ignore[no-untyped-def]
    found = load(words, index)
    while found == value:
        pause()
        found = load(words, index)
    return found


@part
def _spin_until(words, index, value):  # type: ignore[no-untyped-def]
    while load(words, index) != value:
        pause()


@part
def _yield_unlike(words, index, value):  # type: ignore[no-untyped-def]
    pauses = 0
    found = load(words, index)
    while found == value:
        pauses += 1
        if pauses < PATIENCE:
            pause()
        else:
            yield_core()
        found = load(words, index)
    return found


@part
def _yield_until(words, index, value):  # type: ignore[no-untyped-def]
    pauses = 0
    while load(words, index) != value:
        pauses += 1
        if pauses < PATIENCE:
            pause()
        else:
            yield_core()


@part
def _yield(words, index, value):  # type: ignore[no-untyped-def]
    yield_core()


@part
def _sleep(words, index, value):  # type: ignore[no-untyped-def]
    add(words, index + 1, _ONE)
    futex_wait(words, index, value, NAP_NS)
    add(words, index + 1, _LESS_ONE)


@part
def _park_unlike(words, index, value):  # type: ignore[no-untyped-def]
    pauses = 0
    found = load(words, index)
    while found == value:
        pauses += 1
        if pauses < PATIENCE:
            pause()
        else:
            _sleep(words, index, value)
        found = load(words, index)
    return found


@part
def _park_until(words, index, value):  # type: ignore[no-untyped-def]
    pauses = 0
    found = load(words, index)
    while found != value:
        pauses += 1
        if pauses < PATIENCE:
            pause()
        else:
            _sleep(words, index, found)
        found = load(words, index)


@part
def _store(words, index, value):  # type: ignore[no-untyped-def]
    store(words, index, value)


@part
def _store_and_wake(words, index, value):  # type: ignore[no-untyped-def]
    xchg(words, index, value)
    if load_seq_cst(words, index + 1) != _NONE:
        futex_wake(words, index)


@part
def _nobody(words, index):  # type: ignore[no-untyped-def]
    pass


@part
def _wake(words, index):  # type: ignore[no-untyped-def]
    if load_seq_cst(words, index + 1) != _NONE:
        futex_wake(words, index)


_SPIN = Waiting(_spin_unlike, _spin_until, _store, _nobody)
_YIELD = Waiting(_yield_unlike, _yield_until, _store, _nobody)
_PARK = Waiting(_park_unlike, _park_until, _store_and_wake, _wake)
#: What a waiter does once its patience is at an end, by policy: `rest(words, index, value)` returns at any time.
RESTS = {"yield": _yield, "park": _sleep}
