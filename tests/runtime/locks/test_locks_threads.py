"""Locks on real threads: no update is lost, entries come in order, and values never come back."""

from __future__ import annotations

import threading
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.kernels import atomics, kernel, part
from armillary.runtime.locks import (
    Bench,
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
    measure,
    measure_python,
    stress,
)  # fmt: skip
from armillary.runtime.locks.hapax import compiled_wait, drawn
from armillary.runtime.locks.threads.bench import cores, ready, timed_threads
from armillary.runtime.locks.threads.places import LINE_WORDS, aligned, checked

LOCKS: list[Any] = [Hapax(), HapaxVw(), Ticket(), Twa(), Mcs(), Clh(), Hemlock(), Reciprocating(), Ttas(), Pthread()]
two_cores = pytest.mark.skipif(len(cores()) < 2, reason="needs two cores")
_ONE = np.uint64(1)


def _name(lock: Any) -> str:
    return type(lock).__name__


@pytest.mark.parametrize("lock", LOCKS, ids=_name)
@pytest.mark.parametrize("wait", ["spin", "yield", "park"])
def test_no_update_is_lost(lock: Any, wait: str) -> None:
    threads = min(2, len(cores())) if wait == "spin" else 3
    found = stress(lock, threads, 1500 if wait == "spin" else 400, wait=wait)
    assert found, found


@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS, ids=_name)
def test_no_update_of_a_million_is_lost(lock: Any) -> None:
    assert stress(lock, min(2, len(cores())), 1_000_000)


@two_cores
def test_without_a_lock_updates_are_lost() -> None:
    @part
    def acquire(words, at, me, lock):  # type: ignore[no-untyped-def]
        return _ONE

    @part
    def release(words, at, me, lock, token):  # type: ignore[no-untyped-def]
        pass

    # The threads have to meet, which on a busy machine they may not do at once.
    tries = (stress(Ticket(), 2, 500_000, wait="yield", pairs=(acquire, release)) for _ in range(100))
    found = next((one for one in tries if one.entries < one.acquires and one.overlaps), None)
    assert found is not None, "in a hundred tries without a lock nothing was lost"
    assert not found


@pytest.mark.parametrize("lock", [Hapax(slots=1), HapaxVw(slots=1), Twa(slots=1), Hapax(pad=False), Twa(slots=2, pad=False)], ids=repr)
@pytest.mark.parametrize("wait", ["yield", "park"])
def test_waiting_arrays_that_collide_lose_nothing(lock: Any, wait: str) -> None:
    assert stress(lock, 4, 300, wait=wait)


@kernel
def _order(words, at, control, data, me, acquires, log, wait):  # type: ignore[no-untyped-def]
    """Notes the value, the predecessor's and the number of each entry."""
    ready(control)
    for _ in range(acquires):
        mine = drawn(words, at, me)
        before = atomics.xchg(words, 0, mine)
        wait(words, at, 0, before)
        entry = np.int64(data[1])
        log[entry, 0] = mine
        log[entry, 1] = before
        data[1] += _ONE
        atomics.store(words, at.word_stride, mine)
        atomics.store(
            words, at.array + (np.int64((mine * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52)) & at.slot_mask) * at.slot_stride, mine
        )


@pytest.mark.parametrize("block", [4, 1 << 16])
def test_entries_come_in_the_order_of_the_exchanges_and_no_value_comes_back(block: int) -> None:
    threads, acquires = 3, 400
    at = Hapax(block=block).places(1, threads)
    words, control, data, counts = aligned(at.size), aligned(48), aligned(LINE_WORDS), aligned(threads * LINE_WORDS)
    log = np.zeros((threads * acquires, 2), np.uint64)
    wait = compiled_wait("yield")
    timed_threads(lambda me: _order(words, at, control, data, me, acquires, log, wait), control, threads, 0.0, acquires, counts, data)
    values, before = log[:, 0], log[:, 1]
    assert (before[1:] == values[:-1]).all(), "each entry follows the one whose value it exchanged for its own"
    assert before[0] == 0
    assert len(set(values.tolist())) == threads * acquires
    if block == 4:
        assert words[at.counter] == threads * acquires / 4
        assert sorted(values.tolist()) == list(range(1, threads * acquires + 1)), "blocks begin at 1 and leave nothing out"


def _noting(compiled: Any, size: int) -> Any:
    """A lock's acquire, compiled from its own source, whose exchange notes what it got at a word that the exchanged value picks."""

    @part
    def xchg(words, index, value):  # type: ignore[no-untyped-def]
        before = atomics.xchg(words, index, value)
        words[size + value] = before
        return before

    noting = types.ModuleType("noting")
    vars(noting).update(vars(atomics), xchg=xchg)
    source = compiled.py_func
    made = part(types.FunctionType(source.__code__, {**source.__globals__, "atomics": noting}, None, None, source.__closure__))
    made._cache.disable()
    return made


def _out_of_order(lock: Any, threads: int, acquires: int, wait: str, slow: int = 1) -> int:
    """How many entries on real threads did not follow the one that came before them through the doorway.

    With tickets an entry's number is its ticket. Elsewhere whoever enters got the last one's value in exchange for its own, or found
    that nobody was there. One holder in `slow` gives its core up while it is inside.
    """
    name, at = _name(lock), lock.places(1, threads, wait)
    tickets, nodes, empty = name in ("Ticket", "Twa"), name == "Clh", {"Mcs": 0, "Hemlock": 0, "Reciprocating": 1}.get(name, -1)
    words = aligned(at.size + 16 + (threads * (acquires + 64) if isinstance(lock, Hapax) else 2 * threads))
    lock.prepare(words, at)
    compiled, size = lock.compiled(wait), at.size
    acquire, release = compiled.acquire if tickets else _noting(compiled.acquire, size), compiled.release
    control, data, counts = aligned(48), aligned(LINE_WORDS), aligned(threads * LINE_WORDS)
    if nodes:
        data[2] = words[0]

    @kernel
    def enter_often(words, at, control, data, me, counts):  # type: ignore[no-untyped-def]
        ready(control)
        for number in range(acquires):
            token = acquire(words, at, me, 0)
            if tickets:
                data[3] += np.uint64(token != data[1])
            else:
                mine = words[at.threads + me * at.thread_stride] if nodes else token
                before = words[size + np.int64(mine)]
                data[3] += np.uint64(before != data[2] and np.int64(before) > empty)
                data[2] = mine
            data[1] += _ONE
            if number % slow == 0:
                atomics.yield_core()  # So that others come meanwhile and queue up.
            release(words, at, me, 0, token)
        counts[me * LINE_WORDS] = acquires

    enter_often._cache.disable()
    timed_threads(lambda me: enter_often(words, at, control, data, me, counts), control, threads, 0.0, acquires, counts, data)
    assert data[1] == threads * acquires
    return int(data[3])


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock.fifo], ids=_name)
def test_real_threads_enter_in_the_order_of_the_doorway(lock: Any) -> None:
    lock = replace(lock, block=64) if isinstance(lock, Hapax) else lock
    assert _out_of_order(lock, 3, 300, "yield", slow=15) == 0


@pytest.mark.slow
@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock.fifo], ids=_name)
@pytest.mark.parametrize("wait", ["yield", "park"])
def test_a_million_entries_come_in_the_order_of_the_doorway(lock: Any, wait: str) -> None:
    lock = replace(lock, block=64) if isinstance(lock, Hapax) else lock
    assert _out_of_order(lock, 2, 500_000, wait, slow=10_000) == 0
    assert _out_of_order(lock, 5, 20_000, wait, slow=50) == 0


def test_a_lock_that_lets_the_last_comer_in_first_is_out_of_order() -> None:
    assert any(_out_of_order(Reciprocating(), 5, 40, "yield") for _ in range(5))


def test_fairness_and_counts_are_those_of_the_threads() -> None:
    found = measure(Ticket(), Bench(4, 0), 3, acquires=200, wait="yield")
    assert found.counts.tolist() == [200, 200, 200]
    assert found.entries == found.acquires == 600
    assert found.fairness == 1.0
    many = measure(Hapax(), Bench(2, 5, locks=64, zipf=0.9), 3, acquires=300, wait="park")
    assert many.entries == 900
    python = measure_python(Bench(4, 3, locks=2), 2, acquires=100)
    assert (python.entries, python.acquires) == (200, 200)


def test_a_run_for_some_seconds_ends_by_itself() -> None:
    found = measure(Hapax(), Bench(), 2, seconds=0.01, wait="park")
    assert found.entries == found.acquires
    assert found.seconds > 0.005


def test_a_thread_that_fails_stops_the_others_and_says_why() -> None:
    control, data, counts = aligned(48), aligned(16), aligned(32)

    def body(number: int) -> None:
        raise ValueError("no core")

    with pytest.raises(ValueError, match="no core"):
        timed_threads(body, control, 2, 0.001, 0, counts, data)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: measure(Hapax(), Bench(), len(cores()) + 1), 'expected at most one for each core, or wait="yield" or "park"'),
        (lambda: stress(Hapax(), len(cores()) + 1, 5), "for each core"),
        (lambda: measure(Hapax(), Bench(), 0), "threads: found 0"),
        (lambda: measure(Hapax(), Bench(), 1, wait="nap"), "nap"),
        (lambda: stress(Hapax(), 1, 0), "found"),
        (lambda: checked(np.zeros(10_000_000, np.int64), Hapax().places(1, 1)), "found int64"),
        (lambda: checked(np.zeros(20_000_000, np.uint64)[::2], Hapax().places(1, 1)), "C-contiguous"),
        (lambda: checked(np.zeros(5, np.uint64), Hapax().places(1, 1)), "found 5 words; expected at least"),
        (lambda: checked(np.frombuffer(bytearray(8 * 80_001), np.uint8)[4:-4].view(np.uint64), Hapax().places(1, 1)), "aligned to 8 bytes"),
        (lambda: checked([1, 2], Hapax().places(1, 1)), "found list"),
        (lambda: Hapax().places(0, 1), "found 0 locks"),
        (lambda: Ticket().places(1 << 40, 1), "at most"),
    ],
)
def test_what_cannot_run_is_refused(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_the_number_of_values_is_finite_and_its_end_is_said() -> None:
    at = Hapax().places(1, 1)
    words = aligned(at.size)
    words[at.counter] = 1 << 47
    acquire = Hapax().compiled("spin").acquire

    @kernel
    def one(words, at):  # type: ignore[no-untyped-def]
        return acquire(words, at, 0, 0)

    with pytest.raises(OverflowError, match="used up"):
        one(words, at)
    assert threading.active_count() >= 1
