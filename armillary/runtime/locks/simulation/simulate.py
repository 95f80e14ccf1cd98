"""A lock under a workload on a machine in simulated time, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.runtime.locks.description.program import program
from armillary.runtime.locks.workload import Episodes

from .coherence import DISORDER, HANDOVER_PS, HANDOVERS, INVALIDATIONS, LOOKS, OVERTAKEN, STEPS, TRANSFERS, play
from .machine import Machine

WORDS_ON_A_LINE = 8


@dataclass(frozen=True)
class Simulated:
    """What happened. Times are in seconds; the arrays have one entry per episode, in the workload's order."""

    seconds: float
    acquires: int
    #: Moves of a line from cache to cache and copies that were invalidated, of the lock's own lines.
    transfers: int
    invalidations: int
    #: Seconds from the start of a release to the entry of one who waited; NaN if nobody ever did.
    handover_s: float
    #: Entries out of the order of the doorway, and by how many a thread was overtaken at most.
    disorder: int
    overtaken: int
    #: Looks at a word that a thread waits for.
    looks: int
    events: int
    came_ps: npt.NDArray[np.int64]
    entered_ps: npt.NDArray[np.int64]
    gone_ps: npt.NDArray[np.int64]

    @property
    def acquires_per_s(self) -> float:
        """Acquires per simulated second."""
        return self.acquires / self.seconds

    @property
    def coherence_per_acquire(self) -> float:
        """Transfers and invalidations per acquire."""
        return (self.transfers + self.invalidations) / self.acquires


def simulate(lock: Any, work: Episodes, machine: Machine) -> Simulated:
    """Plays every episode of a workload; thread `i` runs on core `i`."""
    described = lock.described()
    if described is None:
        raise InputError(f"{type(lock).__name__} is not simulated, because the kernel takes part in it")
    if work.threads > machine.cores:
        raise InputError(f"found {work.threads} threads; expected at most {machine.cores}, one for each core of the machine")
    made = program(described, work.threads, work.locks)
    line_of, lines = _lines(made.regions, described.packed)
    everything = lines + work.locks
    threads = work.threads
    owner, copies, busy, waiters, last_waiter = _numbers(everything, 5)
    stage, at, episode, next_waiter, doors, pending = _numbers(threads, 6)
    doorway, entries, left = _numbers(work.locks, 3)
    came, entered, gone = _numbers(len(work.lock), 3)
    for positions in (owner, waiters, last_waiter, next_waiter, left):
        positions[:] = -1
    sharers, heap = np.zeros((everything, -(-machine.cores // 64)), np.uint64), np.zeros((threads + 1, 3), np.int64)
    totals = np.zeros(8, np.int64)
    end = play(
        made.code, made.constants, made.release, made.passing, made.own.copy(), made.memory.copy(), line_of, lines, machine.socket_of,
        machine.prices, work.first, work.lock, work.arrive_ps, work.outside_ps, work.hold_ps, work.touches, owner, sharers, copies, busy,
        heap, stage, at, episode, next_waiter, waiters, last_waiter, doorway, entries, left, doors, came, entered, gone, pending, totals,
    )  # fmt: skip
    if end < 0:
        raise RuntimeError(f"{type(lock).__name__}: threads wait for ever in the simulation")
    waited = int(totals[HANDOVERS])
    handover_s = 1e-12 * float(totals[HANDOVER_PS]) / waited if waited else float("nan")
    return Simulated(
        end * 1e-12, len(work.lock), int(totals[TRANSFERS]), int(totals[INVALIDATIONS]), handover_s, int(totals[DISORDER]),
        int(totals[OVERTAKEN]), int(totals[LOOKS]), int(totals[STEPS]), came, entered, gone,
    )  # fmt: skip


def _numbers(size: int, arrays: int) -> npt.NDArray[np.int64]:
    return np.zeros((arrays, size), np.int64)


def _lines(regions: dict[str, tuple[int, int]], packed: tuple[str, ...]) -> tuple[npt.NDArray[np.int64], int]:
    """The line of each word: its own, or one for eight words of a packed region."""
    found, line = np.zeros(sum(size for _, size in regions.values()), np.int64), 0
    for name, (first, size) in regions.items():
        each = WORDS_ON_A_LINE if name in packed else 1
        found[first : first + size] = line + np.arange(size) // each
        line += -(-size // each)
    return found, line
