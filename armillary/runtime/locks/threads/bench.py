"""A microbenchmark on real threads: compiled loops without the interpreter's lock, each pinned to a core of its own."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import kernel, part
from armillary.kernels.atomics import add, load, store, yield_core
from armillary.runtime.locks.workload import DRAWS, Bench

from .places import LINE_WORDS, Places, Words, aligned, checked
from .waiting import POLICIES

#: Words of the array by which a run is controlled: threads that are ready, the start, the end.
READY, GO, STOP = 0, LINE_WORDS, 2 * LINE_WORDS
_A, _B, _ONE = np.uint64(6364136223846793005), np.uint64(1442695040888963407), np.uint64(1)
MOST_THREADS = 4096
#: Words of data that belong to a lock: the generator's state, and how many have been inside.
STATE, COUNT = 0, 1


@dataclass(frozen=True)
class Measured:
    """What a run on real threads gave: acquires of each thread, seconds, and how many entries the sections themselves counted.

    `cpu_s` are CPU seconds of all threads, the work outside and waiting awake included.
    """

    counts: npt.NDArray[np.int64]
    seconds: float
    entries: int
    cpu_s: float

    @property
    def acquires(self) -> int:
        """Acquires of all threads."""
        return int(self.counts.sum())

    @property
    def acquires_per_s(self) -> float:
        """Acquires per second of all threads together."""
        return self.acquires / self.seconds

    @property
    def fairness(self) -> float:
        """The fewest acquires of a thread over the most."""
        return float(self.counts.min() / self.counts.max()) if self.counts.max() else 0.0


def cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def pin(core: int) -> None:
    """Binds the calling thread to one core, where the system lets it."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return


def measure(
    lock: Any, bench: Bench, threads: int, *, wait: str = "spin", seconds: float = 1.0, acquires: int = 0, seed: int = 0
) -> Measured:  # fmt: skip
    """Runs a microbenchmark for so many seconds, or until each thread has acquired so many times.

    Threads that outnumber the cores need `wait="yield"` or `"park"`: with locks that keep an order, a spinning thread may have the core
    that the next in line needs, and nobody goes on until the system takes it away.
    """
    if wait not in POLICIES:
        raise unknown("wait policy", wait, POLICIES)
    if not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads: found {threads}; expected 1 to {MOST_THREADS:,}")
    if threads > len(cores()) and wait == "spin":
        raise InputError(f'found {threads} threads on {len(cores())} cores; expected at most one for each core, or wait="yield" or "park"')
    at = lock.places(bench.locks, threads, wait)
    words = checked(aligned(at.size), at)
    lock.prepare(words, at)
    return run(worker(*lock.compiled(wait)), words, at, bench, threads, seconds=seconds, acquires=acquires, seed=seed)


def run(
    work: Callable[..., None], words: Words, at: Places, bench: Bench, threads: int, *, seconds: float = 1.0, acquires: int = 0,
    seed: int = 0,
) -> Measured:  # fmt: skip
    """Runs a compiled worker on so many threads; each gets its own draws."""
    control, data = aligned(3 * LINE_WORDS), aligned(bench.locks * LINE_WORDS)
    counts = aligned(threads * LINE_WORDS)
    steps, locks = bench.drawn(np.random.Generator(np.random.PCG64DXSM(seed)), (threads, DRAWS))

    def body(number: int) -> None:
        pin(here[number % len(here)])
        began = time.thread_time_ns()
        work(words, at, control, data, steps[number], locks[number], number, bench.inside, acquires, counts)
        used_ns[number] = time.thread_time_ns() - began

    here, used_ns = cores(), [0] * threads
    found = timed_threads(body, control, threads, seconds, acquires, counts, data)
    return replace(found, cpu_s=sum(used_ns) * 1e-9)


def timed_threads(
    body: Callable[[int], None], control: Words, threads: int, seconds: float, acquires: int, counts: Words, data: Words
) -> Measured:  # fmt: skip
    """Starts threads, lets them go together, and ends them after so many seconds, or waits until they have done their acquires.

    The clock stops when the last one has ended. One that is alone waits for nobody at the start.
    """
    faults: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as fault:  # The others must not wait for this one.
            faults.append(fault)
            poke(control, READY)
            poke(control, STOP)

    started = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(threads)]
    if threads == 1:
        poke(control, GO)
        began = time.perf_counter_ns()
    try:
        for thread in started:
            thread.start()
        while threads > 1 and peek(control, READY) < threads:
            time.sleep(0.0005)
        if threads > 1:
            began = time.perf_counter_ns()
            poke(control, GO)
        if not acquires:
            time.sleep(seconds)
            poke(control, STOP)
        for thread in started:
            thread.join()
    except BaseException:  # Whoever breaks the run off does not want threads that go on.
        poke(control, GO)
        poke(control, STOP)
        raise
    ended = time.perf_counter_ns()
    if faults:
        raise faults[0]
    found = counts[: threads * LINE_WORDS : LINE_WORDS].astype(np.int64)
    return Measured(found, (ended - began) * 1e-9, int(data[COUNT::LINE_WORDS].sum()), 0.0)


@kernel
def peek(words, index):  # type: ignore[no-untyped-def]
    """A word, in order with what others write."""
    return load(words, index)


@kernel
def poke(words, index):  # type: ignore[no-untyped-def]
    """Adds 1 to a word, in order with what others read."""
    add(words, index, _ONE)


@part
def ready(control):  # type: ignore[no-untyped-def]
    """Waits until all threads go."""
    add(control, READY, _ONE)
    while load(control, GO) == 0:
        yield_core()


@part
def section(data, lock, inside):  # type: ignore[no-untyped-def]
    """The work inside: an unprotected count, and steps of a generator on words that all holders share."""
    place = lock * LINE_WORDS
    data[place + COUNT] += _ONE
    state = data[place + STATE]
    for _ in range(inside):
        state = state * _A + _B
    data[place + STATE] = state


@kernel
def work_inside(data, lock, inside):  # type: ignore[no-untyped-def]
    """The work inside, for callers that are not compiled."""
    section(data, lock, inside)


@kernel
def work_outside(state, steps):  # type: ignore[no-untyped-def]
    """The work outside, likewise."""
    for _ in range(steps):
        state[0] = state[0] * _A + _B


@functools.cache
def worker(acquire: Any, release: Any) -> Callable[..., None]:
    """The loop of one thread for a lock's two parts."""

    @kernel
    def work(words, at, control, data, steps, locks, me, inside, acquires, counts):  # type: ignore[no-untyped-def]
        own = np.uint64(me)
        number = 0
        ready(control)
        while number == 0 or load(control, STOP) == 0:  # At least one, however late the thread gets a core.
            draw = number & (DRAWS - 1)
            lock = locks[draw]
            token = acquire(words, at, me, lock)
            section(data, lock, inside)
            release(words, at, me, lock, token)
            for _ in range(steps[draw]):
                own = own * _A + _B
            number += 1
            if number == acquires:
                break
        counts[me * LINE_WORDS + 1] = own
        store(counts, me * LINE_WORDS, np.uint64(number))

    return work


def measure_python(bench: Bench, threads: int, *, seconds: float = 1.0, acquires: int = 0, seed: int = 0) -> Measured:
    """The same with `threading.Lock`: acquire and release are Python's, the work inside and outside is compiled."""
    control, data = aligned(3 * LINE_WORDS), aligned(bench.locks * LINE_WORDS)
    counts = aligned(threads * LINE_WORDS)
    steps, locks = bench.drawn(np.random.Generator(np.random.PCG64DXSM(seed)), (threads, DRAWS))
    held = [threading.Lock() for _ in range(bench.locks)]
    here = cores()

    def body(number: int) -> None:
        pin(here[number % len(here)])
        state, mine, which = np.zeros(1, np.uint64), steps[number].tolist(), locks[number].tolist()
        done = 0
        poke(control, READY)
        while not control[GO]:
            time.sleep(0)
        began = time.thread_time_ns()
        while not done or not control[STOP]:
            draw = done & (DRAWS - 1)
            with held[which[draw]]:
                work_inside(data, which[draw], bench.inside)
            if mine[draw]:
                work_outside(state, mine[draw])
            done += 1
            if done == acquires:
                break
        used_ns[number] = time.thread_time_ns() - began
        counts[number * LINE_WORDS] = done

    used_ns = [0] * threads
    found = timed_threads(body, control, threads, seconds, acquires, counts, data)
    return replace(found, cpu_s=sum(used_ns) * 1e-9)
