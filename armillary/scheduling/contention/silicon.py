"""How much pairs of small programs slow each other down on this machine: measured, not modelled.

Eight micro-kernels press on one resource each. Two processes run a pair at the same time, pinned to sibling threads or to two cores of one
socket, and each counts how often it gets round. A slowdown is the rate alone over the rate beside the other.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import loop

from .topology import Topology

Floats = npt.NDArray[np.float64]
KERNELS = ("integer", "fp", "l2", "llc", "stream", "branchy", "pointer-chase", "syscalls")
#: Bytes that a kernel walks over: within a private cache, within the last level, and beyond any cache.
SIZES = {"l2": 256 << 10, "llc": 8 << 20, "stream": 64 << 20, "pointer-chase": 32 << 20}
#: Both processes start so many seconds after they were told, and a worker answers at most so long after its time.
LEAD_S, PATIENCE_S = 0.02, 60.0


@dataclass(frozen=True)
class Pairs:
    """Slowdowns of the row's kernel beside the column's. `core` is None on a machine without sibling threads, `socket` on one core."""

    kernels: tuple[str, ...]
    #: Rounds per second alone.
    alone: Floats
    core: Floats | None
    socket: Floats | None


def measure_pairs(
    kernels: Sequence[str] = KERNELS, *, seconds: float = 0.05, repeats: int = 3, topology: Topology | None = None
) -> Pairs:
    """Measures all ordered pairs of kernels on sibling threads and on two cores of a socket, where this machine has them.

    seconds: how long each pair runs. repeats: the best rate of so many runs counts, because other work on the machine only slows down.
    All eight kernels take about 80 · `repeats` such spans.
    """
    for name in kernels:
        if name not in KERNELS:
            raise unknown("kernel", name, KERNELS)
    if not 1e-3 <= seconds <= 60 or not 1 <= repeats <= 1000:
        raise InputError(f"found {seconds:g} s and {repeats} repeats; expected 0.001 to 60 and 1 to 1,000")
    if not hasattr(os, "sched_setaffinity"):
        raise InputError("found an operating system that does not pin processes; expected Linux")
    here = Topology.here() if topology is None else topology
    siblings, neighbours = _places(here)
    with _Two() as two:
        first = int(here.cpu[0]) if siblings is None else siblings[0]
        alone = np.array([two.best([(name, first)], seconds, repeats)[0] for name in kernels])
        return Pairs(
            tuple(kernels), alone,
            None if siblings is None else _matrix(two, kernels, alone, siblings, seconds, repeats),
            None if neighbours is None else _matrix(two, kernels, alone, neighbours, seconds, repeats),
        )  # fmt: skip


def _places(topology: Topology) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Two CPUs on one core, and two on different cores of one socket; None where there are none."""
    siblings = neighbours = None
    for row in topology.members:
        held = row[row >= 0]
        if len(held) > 1 and siblings is None:
            siblings = int(topology.cpu[held[0]]), int(topology.cpu[held[1]])
    for s in range(topology.sockets):
        cores, first = np.unique(topology.core[topology.socket == s], return_index=True)
        if len(cores) > 1 and neighbours is None:
            cpus = topology.cpu[topology.socket == s][first]
            neighbours = int(cpus[0]), int(cpus[1])
    return siblings, neighbours


def _matrix(two: _Two, kernels: Sequence[str], alone: Floats, cpus: tuple[int, int], seconds: float, repeats: int) -> Floats:
    found = np.empty((len(kernels), len(kernels)))
    for i, a in enumerate(kernels):
        for j, b in enumerate(kernels[: i + 1]):
            rates = two.best([(a, cpus[0]), (b, cpus[1])], seconds, repeats)
            found[i, j], found[j, i] = alone[i] / rates[0], alone[j] / rates[1]
    return found


class _Two:
    """Two worker processes that run kernels where and when they are told; they end with the block."""

    def __enter__(self) -> _Two:
        context = multiprocessing.get_context("spawn")
        self._ends, self._workers = [], []
        for _ in range(2):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs,), daemon=True)
            worker.start()
            theirs.close()
            self._ends.append(ours)
            self._workers.append(worker)
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for worker in self._workers:
            worker.join(5.0)
            if worker.is_alive():
                worker.terminate()
                worker.join()

    def best(self, jobs: Sequence[tuple[str, int]], seconds: float, repeats: int) -> Floats:
        """The best of several runs, for each of the jobs."""
        found: Floats = np.max([self.rates(jobs, seconds) for _ in range(repeats)], axis=0)
        return found

    def rates(self, jobs: Sequence[tuple[str, int]], seconds: float) -> list[float]:
        """Rounds per second of kernels that run at the same time, each on its CPU."""
        for (name, _), end in zip(jobs, self._ends):
            end.send(("ready", name))
        for _, end in zip(jobs, self._ends):
            self._answer(end)
        begin = time.monotonic() + LEAD_S
        for (name, cpu), end in zip(jobs, self._ends):
            end.send(("run", name, cpu, begin, seconds))
        return [self._answer(end) for _, end in zip(jobs, self._ends)]

    def _answer(self, end: Any) -> float:
        if not end.poll(PATIENCE_S):
            raise InputError(f"found no answer of a measuring process within {PATIENCE_S:g} s")
        found = end.recv()
        if isinstance(found, str):
            raise InputError(found)
        return float(found)


def _work(end: Any) -> None:
    ready: dict[str, Callable[[], None]] = {}
    while True:
        try:
            order = end.recv()
        except (EOFError, OSError):
            return
        name = order[1]
        if name not in ready:
            ready[name] = _kernel(name)
            ready[name]()
        if order[0] == "ready":
            end.send(1.0)
            continue
        _, _, cpu, begin, seconds = order
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError as error:
            end.send(f"CPU {cpu}: {error.strerror}; expected one on which this process may run")
            continue
        run = ready[name]
        while time.monotonic() < begin:
            pass
        rounds, stop = 0, begin + seconds
        while (now := time.monotonic()) < stop or rounds == 0:
            run()
            rounds += 1
        end.send(rounds / max(now - begin, 1e-9))


def _kernel(name: str) -> Callable[[], None]:
    """A call that takes some tens of microseconds up to a few milliseconds."""
    rng = np.random.default_rng(0)
    if name == "integer":
        return lambda: _integer(20_000)
    if name == "fp":
        return lambda: _floating_point(20_000)
    if name == "branchy":
        coins = rng.integers(0, 2, 16_384).astype(np.uint8)
        return lambda: _branchy(coins)
    if name == "pointer-chase":
        n = SIZES[name] // 8
        order = rng.permutation(n)
        following = np.empty(n, np.int64)
        following[order] = np.roll(order, -1)
        place = np.zeros(1, np.int64)
        return lambda: _chase(following, place, 2_000)
    if name == "syscalls":
        return _syscalls
    data = np.ones(SIZES[name] // 8)
    if name == "stream":
        half = len(data) // 2
        return lambda: _stream(data[:half], data[half:])
    return lambda: _walk(data, max(1, 32_768 // (len(data) // 8)))


def _syscalls() -> None:
    for _ in range(100):
        os.getppid()


@loop
def _integer(rounds):  # type: ignore[no-untyped-def]
    a, b = np.uint64(88172645463325252), np.uint64(2463534242)
    for _ in range(rounds):
        a ^= a << np.uint64(13)
        b ^= b >> np.uint64(7)
        a ^= a >> np.uint64(7)
        b ^= b << np.uint64(17)
    return a ^ b


@loop
def _floating_point(rounds):  # type: ignore[no-untyped-def]
    a, b, c, d = 1.0, 1.1, 1.2, 1.3
    for _ in range(rounds):
        a = a * 0.999 + 0.001
        b = b * 0.998 + 0.002
        c = c * 0.997 + 0.003
        d = d * 0.996 + 0.004
    return a + b + c + d


@loop
def _branchy(coins):  # type: ignore[no-untyped-def]
    a, b = 1, 1
    for coin in coins:
        if coin == 1:
            a = (a * 3 + b) & 1023
        else:
            b = (b * 5 + a) & 1023
    return a + b


@loop
def _chase(following, place, steps):  # type: ignore[no-untyped-def]
    at = place[0]
    for _ in range(steps):
        at = following[at]
    place[0] = at


@loop
def _walk(data, rounds):  # type: ignore[no-untyped-def]
    total = 0.0
    for _ in range(rounds):
        for i in range(0, len(data), 8):
            total += data[i]
    return total


@loop
def _stream(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        target[i] = 1.5 * source[i]
