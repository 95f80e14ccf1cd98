"""Locks in other people's code: compiled loops, Python threads, processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit  # noqa: TID251 - a user's own loop.

from armillary.errors import InputError
from armillary.runtime.locks import (
    Bench,
    Hapax,
    HapaxLock,
    HapaxMutex,
    LockRecorder,
    Machine,
    choose,
    lock,
    read_trace,
    simulate,
    words_needed,
)  # fmt: skip
from armillary.runtime.locks.arena import locks
from armillary.runtime.locks.sockets.arrays import _CHOICES, KINDS, space_of
from armillary.runtime.locks.sockets.choose import typical
from armillary.runtime.locks.threads.bench import Measured

FLOATS: Any = np.zeros(1 << 20)


def together(threads: int, body: Callable[[int], Any]) -> None:
    started = [threading.Thread(target=body, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


@njit(nogil=True)
def fill(stripes, table, thread, times):  # type: ignore[no-untyped-def]
    for i in range(times):
        place = (i * 7 + thread) % len(table)
        stripes.acquire(thread, place)
        table[place] += 1
        stripes.release(thread, place)


@pytest.mark.parametrize("kind", ["hapax", "mcs"])
def test_stripes_guard_a_table_in_a_compiled_loop(kind: str) -> None:
    table = np.zeros(8, np.int64)
    stripes = lock(kind, n=8, threads=3, wait="park")
    fill(stripes, table, 0, 0)
    together(3, lambda thread: fill(stripes, table, thread, 400))
    assert table.sum() == 1200


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pad", [True, False])
def test_every_kind_guards_a_table(kind: str, pad: bool) -> None:
    table = np.zeros(8, np.int64)
    stripes = lock(kind, n=8, threads=3, wait="yield", debug=True, pad=pad)
    fill(stripes, table, 0, 0)
    together(3, lambda thread: fill(stripes, table, thread, 400))
    assert table.sum() == 1200


def test_a_release_by_another_thread_raises_where_one_debugs() -> None:
    one = HapaxLock(threads=2, wait="yield", debug=True)
    one.acquire(0)
    with pytest.raises(RuntimeError, match="does not hold"):
        one.release(1)
    one.release(0)
    with pytest.raises(RuntimeError, match="does not hold"):
        one.release(0)


@pytest.mark.parametrize("kind", ["mcs", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("clh", "reciprocating"))])
def test_a_second_lock_of_a_kind_with_one_node_raises_where_one_debugs(kind: str) -> None:
    two = lock(kind, 2, threads=2, wait="yield", debug=True)
    for index in (0, 1):  # One after the other is no fault.
        two.acquire(0, index)
        two.release(0, index)
    two.acquire(0, 0)
    with pytest.raises(RuntimeError, match="may hold one at a time"):
        two.acquire(0, 1)
    two.release(0, 0)
    two.acquire(0, 1)


def test_a_lock_that_its_holder_acquires_again_raises_where_one_debugs() -> None:
    two = HapaxLock(2, threads=2, wait="yield", debug=True)
    two.acquire(0)
    two.acquire(0, 1)
    with pytest.raises(RuntimeError, match="that it holds"):
        two.acquire(0, 1)


@njit(nogil=True)
def transfer(stripes, table, thread, times):  # type: ignore[no-untyped-def]
    """Moves one from a place to another, holding both locks, the lower one taken first."""
    for i in range(times):
        source, target = (i * 5 + thread) % len(table), (i * 3 + 1) % len(table)
        if source == target:
            continue
        low, high = min(source, target), max(source, target)
        stripes.acquire(thread, low)
        stripes.acquire(thread, high)
        table[source] -= 1
        table[target] += 1
        stripes.release(thread, low)  # Not in the reverse order.
        stripes.release(thread, high)


@pytest.mark.parametrize("kind", ["hemlock"])
def test_a_thread_may_hold_two_locks(kind: str) -> None:
    table = np.zeros(5, np.int64)
    stripes = lock(kind, n=5, threads=3, wait="yield", debug=True)
    transfer(stripes, table, 0, 0)
    together(3, lambda thread: transfer(stripes, table, thread, 2000))
    alone = np.zeros(5, np.int64)
    for thread in range(3):
        transfer(stripes, alone, thread, 2000)
    assert table.tolist() == alone.tolist()
    assert not table.sum()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if locks.make(kind).holds_many])  # type: ignore[attr-defined]
def test_every_kind_that_says_so_lets_a_thread_hold_two(kind: str) -> None:
    test_a_thread_may_hold_two_locks(kind)


@pytest.mark.parametrize("kind", ["hapax", pytest.param("hapax-vw", marks=pytest.mark.slow)])
def test_a_lock_that_is_held_or_waited_for_cannot_be_tried(kind: str) -> None:
    two = lock(kind, 2, threads=2, wait="yield", pad=False)
    assert two.try_acquire(0)
    assert not two.try_acquire(1)
    assert two.try_acquire(1, 1)
    two.release(0)
    assert two.try_acquire(1)
    assert space_of(two) == 24


def test_threads_and_locks_out_of_range_touch_nothing() -> None:
    one = HapaxLock(2, threads=2, wait="yield")
    before = one.words.copy()
    for thread, index in ((2, 0), (-1, 0), (0, 2), (0, -1)):
        with pytest.raises(IndexError):
            one.acquire(thread, index)
        with pytest.raises(IndexError):
            one.release(thread, index)
    assert (one.words == before).all()


def test_locks_lie_in_the_callers_array() -> None:
    size = words_needed("hapax", 4, threads=2, wait="yield")
    words = np.zeros(size, np.uint64)
    one, other = (lock("hapax", 4, threads=2, wait="yield", words=words, attach=flag) for flag in (False, True))
    one.acquire(0, 3)
    assert not other.try_acquire(1, 3)
    one.release(0, 3)
    assert other.try_acquire(1, 3)
    with pytest.raises(InputError, match=f"expected at least {size:,}"):
        lock("hapax", 4, threads=2, wait="yield", words=words[:-1])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lock("pylock"), "pylock"),
        (lambda: lock("mutx"), "mutx"),
        (lambda: lock("pthread", threads=1, attach=True), "not woken from another process"),
        (lambda: lock("auto", threads=1, attach=True), "may pick another kind"),
        (lambda: lock("hapax", threads=10_000), 'wait="yield"'),
        (lambda: lock("hapax", wait="nap"), "nap"),
        (lambda: lock("hapax", n=0), "found 0 locks"),
        (lambda: lock("hapax", words=FLOATS), "found float64"),
        (lambda: lock("mcs", threads=1, words=np.ones(1000, np.uint64)), "words that are not 0"),
        (lambda: HapaxMutex(wait="spin"), "expected yield or park"),
        (lambda: lock("ticket", threads=1, bench=Bench()), 'expected it with "auto"'),
        (lambda: choose(threads=0), "found 0 threads"),
        (lambda: choose(seconds=0.0), "0.0 s"),
    ],
)
def test_what_cannot_be_made_is_refused(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


@pytest.mark.parametrize("wait", ["park", "yield"])
def test_a_mutex_guards_python_threads(wait: str) -> None:
    mutex, count = HapaxMutex(wait), [0]

    def body(_: int) -> None:
        for _ in range(300):
            with mutex:
                seen = count[0]
                count[0] = seen + 1

    together(4, body)
    assert count == [1200]
    assert not mutex.locked()


def test_a_mutex_lets_threads_in_by_the_order_in_which_they_came() -> None:
    mutex, order = HapaxMutex(), []
    arrive, last = mutex._words, 0

    def body(number: int) -> None:
        with mutex:
            order.append(number)

    mutex.acquire()
    threads = []
    for number in range(5):
        last = int(arrive[0])
        threads.append(threading.Thread(target=body, args=(number,)))
        threads[-1].start()
        while int(arrive[0]) == last:  # Until it has exchanged its value.
            pass
    mutex.release()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_a_mutex_has_the_form_of_pythons_lock() -> None:
    mutex = HapaxMutex()
    assert mutex.acquire(blocking=False)
    assert mutex.locked()
    assert not mutex.acquire(blocking=False)
    assert not mutex.acquire(timeout=0.0)
    mutex.release()
    assert mutex.acquire(timeout=1.0)
    mutex.release()
    with pytest.raises(RuntimeError, match="nobody holds"):
        mutex.release()
    with pytest.raises(ValueError, match="no timeout"):
        mutex.acquire(blocking=False, timeout=1.0)
    with pytest.raises(ValueError, match="negative"):
        mutex.acquire(timeout=-2.0)
    with pytest.raises(KeyError), mutex:
        raise KeyError
    assert not mutex.locked()


def test_recorded_locks_of_a_program_can_be_replayed(tmp_path: Path) -> None:
    recorder = LockRecorder()
    guards, count = [recorder.wrap(made) for made in (threading.Lock(), HapaxMutex())], [0, 0]

    def body(number: int) -> None:
        for i in range(50):
            with guards[i % 2]:
                count[i % 2] += 1

    guards[0].acquire()
    assert guards[0].locked()
    assert not guards[0].acquire(blocking=False)
    assert not guards[1].locked()
    guards[0].release()
    together(3, body)
    assert count == [75, 75]
    work = read_trace(recorder.write(tmp_path / "locks.csv"))
    assert 2 <= work.threads <= 4, "this thread, and three others of which one may follow another"
    assert (work.locks, len(work.lock)) == (2, 151)
    assert np.bincount(work.lock).tolist() == [76, 75]
    assert (work.hold_ps > 0).all()
    found = simulate(Hapax(), work, Machine((4,)))
    assert found.acquires == 151
    with pytest.raises(RuntimeError):
        guards[0].release()
    assert len(recorder._uses) == 151, "a release that fails is no use"


def test_a_recorder_stops_at_its_limit_and_counts_the_rest(tmp_path: Path) -> None:
    recorder = LockRecorder(most=2)
    guard = recorder.wrap(threading.Lock())
    for _ in range(5):
        with guard:
            pass
    assert recorder.left_out == 3
    assert len(read_trace(recorder.write(tmp_path / "few.csv")).lock) == 2
    with pytest.raises(InputError, match="found 0 uses at most"):
        LockRecorder(most=0)


@pytest.mark.parametrize("wait", ["park", "yield"])
def test_a_waiter_that_is_interrupted_leaves_a_mutex_that_works(wait: str) -> None:
    mutex, order = HapaxMutex(wait), []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    mutex.acquire()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            mutex.acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
    arrived = int(mutex._words[0])
    last = threading.Thread(target=lambda: order.append(mutex.acquire()))
    last.start()
    while int(mutex._words[0]) == arrived:
        time.sleep(0)
    mutex.release()
    last.join(timeout=60)
    assert order == [True]
    mutex.release()
    assert not mutex.locked()


def test_the_choice_is_the_fastest_of_its_own_curve() -> None:
    found = choose(Bench(4, 20), threads=2, wait="yield", seconds=0.01)
    assert set(found.curve) == {"ticket", "hapax", "pthread"}
    assert all(set(rates) == {1, 2} for rates in found.curve.values())
    assert found.curve[found.kind][2] == max(rates[2] for rates in found.curve.values())
    assert found.table().splitlines()[0].split() == ["threads", *found.curve]


def test_a_window_in_which_one_thread_ran_alone_does_not_count() -> None:
    even, alone = (Measured(np.array(counts), 1.0, sum(counts), 1.0) for counts in ([40, 60], [5000, 1]))
    assert typical([alone, even, alone]) == 100
    assert typical([alone, alone]) == 5001


def test_auto_makes_the_locks_that_its_probe_picked_and_keeps_the_curve() -> None:
    words = np.zeros(words_needed("auto", 8, threads=2, wait="yield"), np.uint64)
    stripes = lock("auto", n=8, threads=2, wait="yield", bench=Bench(2, 20, locks=8), words=words)
    assert stripes.kind == stripes.choice.kind
    assert set(stripes.choice.curve) == {"ticket", "hapax", "pthread"}
    stripes.acquire(0, 3)
    stripes.release(0, 3)
    assert lock("ticket", threads=1).choice is None
    kept = len(_CHOICES)
    del stripes, words
    assert len(_CHOICES) == kept - 1, "the curve goes with the locks"


PROCESS = """
import sys
import numpy as np
from multiprocessing import resource_tracker, shared_memory
from armillary.runtime.locks import lock
memory = shared_memory.SharedMemory(sys.argv[1])
resource_tracker.unregister(memory._name, "shared_memory")
size, thread = int(sys.argv[2]), int(sys.argv[3])
words = np.frombuffer(memory.buf, np.uint64, size)
data = np.frombuffer(memory.buf, np.int64, 1, 8 * size)
locks = lock("hapax", 1, threads=2, wait="park", words=words, attach=True)
for _ in range(3000):
    locks.acquire(thread)
    data[0] += 1
    locks.release(thread)
del words, data, locks
"""


@pytest.mark.slow
def test_two_processes_share_a_lock() -> None:
    size = words_needed("hapax", 1, threads=2, wait="park")
    memory = shared_memory.SharedMemory(create=True, size=8 * size + 8)
    shared: Any = memory.buf
    try:
        np.frombuffer(shared, np.uint64, size)[:] = 0
        running = [subprocess.Popen([sys.executable, "-c", PROCESS, memory.name, str(size), str(thread)]) for thread in range(2)]
        assert [one.wait(timeout=300) for one in running] == [0, 0]
        assert int(np.frombuffer(shared, np.int64, 1, 8 * size)[0]) == 6000
    finally:
        del shared
        memory.close()
        memory.unlink()


HOLDER = """
import sys, time
import numpy as np
from multiprocessing import resource_tracker, shared_memory
from armillary.runtime.locks import lock
memory = shared_memory.SharedMemory(sys.argv[1])
resource_tracker.unregister(memory._name, "shared_memory")
locks = lock("hapax", 1, threads=2, wait="park", words=np.frombuffer(memory.buf, np.uint64, int(sys.argv[2])), attach=True)
locks.acquire(1)
print("inside", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_lock_whose_holder_is_killed_stays_held_and_can_be_tried() -> None:
    size = words_needed("hapax", 1, threads=2, wait="park")
    memory = shared_memory.SharedMemory(create=True, size=8 * size)
    words: Any = np.frombuffer(memory.buf, np.uint64, size)
    try:
        words[:] = 0
        mine = lock("hapax", 1, threads=2, wait="park", words=words, attach=True)
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, memory.name, str(size)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "inside\n"
        holder.kill()
        holder.wait(timeout=60)
        holder.stdout.close()
        assert not mine.try_acquire(0)
        mine.release(1)  # Whoever knows that the holder is dead may release in its name.
        assert mine.try_acquire(0)
    finally:
        del words, mine
        memory.close()
        memory.unlink()
