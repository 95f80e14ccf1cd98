"""The checker finds every planted fault and none in the locks, and SPIN says the same."""

from __future__ import annotations

import importlib
import shutil
from typing import Any

import pytest
from locks_planted import EXCLUSION, PLANTED, STUCK, TRIES, TRIES_BLINDLY

from armillary.errors import InputError
from armillary.runtime.locks import (
    Clh,
    Hapax,
    HapaxVw,
    Hemlock,
    Mcs,
    Pthread,
    Reciprocating,
    Ticket,
    Ttas,
    Twa,
    check,
    promela,
    spin_answers,
)
from armillary.runtime.locks.description.program import program
from armillary.runtime.locks.description.steps import Description, Steps, add, load, store

LOCKS: list[Any] = [
    Hapax(slots=2, block=4), HapaxVw(slots=2, block=4), Ticket(), Twa(slots=2), Mcs(), Clh(), Hemlock(), Reciprocating(), Ttas(),
]  # fmt: skip
checking: Any = importlib.import_module("armillary.runtime.locks.checking.check")
SIZES = [(2, 3, "sc"), (3, 2, "sc"), (2, 2, "tso")]
needs_spin = pytest.mark.skipif(not (shutil.which("spin") and shutil.which("cc")), reason="needs SPIN and a C compiler")


def _name(lock: Any) -> str:
    return type(lock).__name__


@pytest.mark.parametrize("lock", LOCKS, ids=_name)
def test_nothing_can_go_wrong_with_a_lock(lock: Any) -> None:
    for threads, episodes, model in SIZES:
        found = check(lock, threads, episodes, model=model)
        assert found, "\n".join((found.fault, *found.trace))
        assert found.states > 100


@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS, ids=_name)
def test_nothing_can_go_wrong_with_more_threads_and_store_buffers(lock: Any) -> None:
    assert check(lock, 3, 2, model="tso")
    assert check(lock, 3, 3) if _name(lock) not in ("Hapax", "HapaxVw") else check(lock, 2, 5)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str) -> None:
    described, plain, buffered = PLANTED[name]
    for model, expected in (("sc", plain), ("tso", buffered)):
        found = check(described, 2, 2, model=model)
        assert found.fault == expected
        assert bool(found.trace) == bool(expected)


def test_a_shortest_way_to_the_fault_is_told() -> None:
    found = check(PLANTED["depart read before the slot"][0], 2, 1)
    assert found.fault == STUCK
    assert found.trace[-1].endswith("unlike(array, place.1, seen.1)") or "array" in found.trace[-1]
    assert any("load(depart" in one for one in found.trace)
    buffered = check(PLANTED["plain store of depart"][0], 2, 2, model="tso")
    assert any("becomes visible" in one for one in buffered.trace)


@needs_spin
@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS, ids=_name)
def test_spin_finds_nothing_in_the_locks_either(lock: Any) -> None:
    for threads, episodes, model in SIZES:
        assert spin_answers(promela(lock.described(), threads, episodes, model=model)) == ""


@needs_spin
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_spin_finds_what_was_planted(name: str) -> None:
    described, plain, buffered = PLANTED[name]
    for model, expected in (("sc", plain), ("tso", buffered)):
        written = promela(described, 2, 2, model=model)
        assert bool(spin_answers(written)) == bool(expected)
        # Where exclusion is broken threads may also wait for ever, and SPIN meets that first.
        assert spin_answers(written, ends=False) == ("" if expected in ("", STUCK) else "assertion")


@needs_spin
def test_spin_finds_a_fault_that_store_buffers_alone_bring() -> None:
    assert spin_answers(promela(PLANTED["plain store of depart"][0], 2, 2, model="tso")) == "invalid end"


def test_one_slot_for_all_values_changes_nothing_but_the_looks() -> None:
    assert check(Hapax(slots=1, block=4), 3, 2)
    assert check(HapaxVw(slots=1, block=4), 3, 2)
    assert check(Twa(slots=1), 3, 2)


def test_the_size_of_a_block_of_values_changes_nothing() -> None:
    """As they are, a lock's values would not fit a state."""
    small, large = (check(Hapax(slots=2, block=block), 2, 3) for block in (3, 1 << 16))
    assert small
    assert (large.fault, large.states, large.moves) == ("", small.states, small.moves)
    assert check(Hapax(), 2, 2)
    assert check(HapaxVw(), 2, 2, model="tso")


def test_values_that_do_not_fit_a_state_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(me: Any, lock: int) -> Steps:
        mine = yield add("word", 0, 30_000)
        return mine

    def doubled(me: Any, lock: int) -> Steps:
        mine = yield add("word", 0, 300)
        mine = mine * 300
        return mine

    def release(me: Any, lock: int, token: int) -> Steps:
        yield load("word", 0)

    for one in (acquire, doubled):
        assert check(Description(one, release, {"word": "one"}, fifo=False), 1, 3).fault == "a value does not fit"
    with pytest.raises(InputError, match="larger values"):
        check(Description(release, release, {"word": "one"}, constants={"far": 40_000}, own={"kept": lambda number: 40_000}), 1, 1)
    monkeypatch.setattr(checking, "MOST_BYTES", 1 << 28)
    with pytest.raises(InputError, match="expected fewer threads, episodes or slots"):
        check(Hapax(), 3, 3)
    with pytest.raises(InputError, match="found 4,099 words of memory"):
        promela(Hapax().described(), 2, 2)


def test_threads_that_try_first_do_not_meet_inside() -> None:
    for threads, episodes, model in ((2, 2, "sc"), (3, 1, "sc"), (2, 2, "tso")):
        found = check(TRIES, threads, episodes, model=model)
        assert found, "\n".join((found.fault, *found.trace))
    assert check(TRIES_BLINDLY, 2, 1).fault == EXCLUSION


def test_two_locks_share_one_waiting_array() -> None:
    for lock in (Hapax(slots=1, block=8), HapaxVw(slots=1, block=8), Twa(slots=1), Mcs(), Clh(), Hemlock(), Reciprocating()):
        assert check(lock, 2, 4, locks=2), type(lock).__name__


def test_states_of_two_threads_that_only_store_are_counted_by_hand() -> None:
    def acquire(me: Any, lock: int) -> Steps:
        yield load("word", 0)
        return 0

    def release(me: Any, lock: int, token: int) -> Steps:
        yield store("word", 0, 0)

    described = Description(acquire, release, {"word": "one"}, fifo=False)
    alone = check(described, 1, 1)
    assert alone
    assert (alone.states, alone.moves) == (4, 3), "before the load, inside, before the store, done"
    assert check(described, 2, 1).fault == EXCLUSION


@pytest.mark.parametrize(
    ("how", "said"),
    [({"model": "arm"}, "known: sc, tso"), ({"threads": 0}, "found 0 threads"), ({"threads": 9}, "9 threads"), ({"episodes": 0}, "0 episodes"),
     ({"locks": 0}, "0 locks"), ({"threads": 3, "most_states": 1000}, "more than 1,000 states")],
)  # fmt: skip
def test_wrong_searches_are_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(LOCKS[0], **{"threads": 2, "episodes": 2, **how})


def test_a_lock_with_the_kernel_in_it_is_not_checked() -> None:
    with pytest.raises(InputError, match="the kernel takes part"):
        check(Pthread())


def test_a_description_says_what_it_cannot_have() -> None:
    def looped(me: Any, lock: int) -> Steps:
        for _ in range(3):
            yield load("word", 0)
        return 0

    def strange(me: Any, lock: int) -> Steps:
        yield load("other", 0)
        return 0

    def release(me: Any, lock: int, token: int) -> Steps:
        yield store("word", 0, 0)

    with pytest.raises(TypeError, match="cannot have For"):
        program(Description(looped, release, {"word": "one"}), 2)
    with pytest.raises(TypeError, match="expected one of word"):
        program(Description(strange, release, {"word": "one"}), 2)
