"""Hapax locks with a fault each, for a checker to find."""

from __future__ import annotations

from typing import Any

from armillary.runtime.locks.description.steps import Description, Steps, cas, load, slot, store, unlike, until, xchg
from armillary.runtime.locks.hapax import _acquire as acquire
from armillary.runtime.locks.hapax import _release as release
from armillary.runtime.locks.hapax import draw
from armillary.runtime.locks.hapax_vw import _acquire as acquire_seen

WORDS = {"arrive": "lock", "depart": "lock", "blocks": "one", "array": "slot"}


def _made(acquiring: Any, releasing: Any, **how: Any) -> Description:
    own = {"next": lambda number: 0, "end": lambda number: 0}
    return Description(acquiring, releasing, WORDS, slots=2, constants={"slots": 2, "block": 4}, own=own, **how)


def _with_thread_numbers(me: Any, lock: int) -> Steps:
    mine = me.id + 1
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


def _depart_before_slot(me: Any, lock: int) -> Steps:
    mine = yield from draw(me)
    before = yield xchg("arrive", lock, mine, doorway=True)
    place = slot(before, me.slots)
    while True:
        departed = yield load("depart", lock)
        if departed == before:
            break
        seen = yield load("array", place)
        yield unlike("array", place, seen)
    return mine


def _slot_before_depart(me: Any, lock: int, token: int) -> Steps:
    yield store("array", slot(token, me.slots), token)
    yield store("depart", lock, token)


def _plain_store(me: Any, lock: int, token: int) -> Steps:
    place = slot(token, me.slots)
    yield store("depart", lock, token)
    waiter = yield load("array", place)
    if waiter == token:
        yield cas("array", place, token, 0)


def _free_for_all(me: Any, lock: int) -> Steps:
    held = yield load("held", lock, doorway=True)
    while True:
        if held != 0:
            yield until("held", lock, 0)
        held = yield xchg("held", lock, 1)
        if held == 0:
            break
    return 1


def _open(me: Any, lock: int, token: int) -> Steps:
    yield store("held", lock, 0)


def _look_then_take(me: Any, lock: int) -> Steps:
    held = yield until("held", lock, 0)
    yield store("held", lock, 1)
    return held


def _try_then_queue(me: Any, lock: int) -> Steps:
    """As `try_acquire`, and where that fails, as `acquire`."""
    last = yield load("arrive", lock)
    departed = yield load("depart", lock)
    if departed == last:
        mine = yield from draw(me)
        was = yield cas("arrive", lock, last, mine)
        if was == last:
            return mine
    mine = yield from draw(me)
    before = yield xchg("arrive", lock, mine)
    place = slot(before, me.slots)
    while True:
        seen = yield load("array", place)
        departed = yield load("depart", lock)
        if departed == before:
            break
        yield unlike("array", place, seen)
    return mine


def _try_without_a_look(me: Any, lock: int) -> Steps:
    """Takes the place of the last one without looking whether that one has departed."""
    last = yield load("arrive", lock)
    mine = yield from draw(me)
    was = yield cas("arrive", lock, last, mine)
    if was != last:
        before = yield xchg("arrive", lock, mine)
        yield until("depart", lock, before)
    return mine


#: The order breaks sooner than exclusion, which is what is looked for.
THREAD_NUMBERS = _made(_with_thread_numbers, release, fifo=False)
DEPART_FIRST = _made(_depart_before_slot, release)
SLOT_FIRST = _made(acquire, _slot_before_depart)
TRIES = _made(_try_then_queue, release, fifo=False)
TRIES_BLINDLY = _made(_try_without_a_look, release, fifo=False)
PLAIN_STORE = _made(acquire_seen, _plain_store)
OUT_OF_ORDER = Description(_free_for_all, _open, {"held": "lock"}, fifo=True)
LOOK_THEN_TAKE = Description(_look_then_take, _open, {"held": "lock"}, fifo=False)
#: Name to description, and the fault that is to be found under sequential consistency and under TSO: here and by SPIN.
EXCLUSION, STUCK, ORDER = (
    "two threads are inside at once",
    "threads wait and none can go on",
    "a thread is let in before one that came earlier",
)
PLANTED = {
    "thread numbers": (THREAD_NUMBERS, EXCLUSION, EXCLUSION),
    "depart read before the slot": (DEPART_FIRST, STUCK, STUCK),
    "slot stored before depart": (SLOT_FIRST, STUCK, STUCK),
    "plain store of depart": (PLAIN_STORE, "", STUCK),
    "out of order": (OUT_OF_ORDER, ORDER, ORDER),
    "look, then take": (LOOK_THEN_TAKE, EXCLUSION, EXCLUSION),
}
