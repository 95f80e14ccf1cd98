"""What threads do with locks: how long they are inside and outside, which lock they take, and when they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.runtime.locks.simulation.machine import STEP_PS

Numbers = npt.NDArray[np.int64]
MOST_LOCKS = 1 << 20
MOST_STEPS = 10_000_000
#: Draws of each thread that a measured loop goes through in turn; a power of two.
DRAWS = 4096


@dataclass(frozen=True)
class Bench:
    """A microbenchmark: steps of a 64-bit linear congruential generator inside and outside the section.

    `inside` steps are on words that all holders of the lock share; `outside` steps are on the thread's own, drawn uniformly from 0 to
    `outside`, or exactly that many with `fixed`. With several locks one is picked for each episode: uniformly, or with Zipf's exponent.
    """

    inside: int = 4
    outside: int = 0
    fixed: bool = False
    locks: int = 1
    zipf: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("inside", self.inside), ("outside", self.outside)):
            if not 0 <= value <= MOST_STEPS:
                raise InputError(f"{name}: found {value}; expected 0 to {MOST_STEPS:,} steps")
        if not 1 <= self.locks <= MOST_LOCKS:
            raise InputError(f"locks: found {self.locks}; expected 1 to {MOST_LOCKS:,}")
        if not 0 <= self.zipf <= 4:
            raise InputError(f"zipf: found {self.zipf}; expected an exponent from 0 to 4")

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Numbers, Numbers]:
        """(steps outside, lock) of so many episodes."""
        steps = np.full(shape, self.outside, np.int64) if self.fixed else rng.integers(0, self.outside + 1, shape)
        if self.locks == 1:
            return steps, np.zeros(shape, np.int64)
        if not self.zipf:
            return steps, rng.integers(0, self.locks, shape)
        # Shares are summed in whole numbers, so that the last bit of a power decides nothing.
        shares = np.cumsum(np.round(1e9 * np.arange(1.0, self.locks + 1) ** -self.zipf).astype(np.int64))
        return steps, np.searchsorted(shares, rng.integers(0, shares[-1], shape), side="right").astype(np.int64)


@dataclass(frozen=True)
class Episodes:
    """Every episode of every thread, for the simulator: thread `t` has those from first[t] to first[t + 1], in order.

    An episode begins at `arrive_ps`, or `outside_ps` after the end of the thread's last one if that is later, and holds its lock for
    `hold_ps`. `touches` says that the section also writes a line of data that belongs to the lock.
    """

    locks: int
    first: Numbers
    lock: Numbers
    arrive_ps: Numbers
    outside_ps: Numbers
    hold_ps: Numbers
    touches: bool = True

    @property
    def threads(self) -> int:
        """The number of threads."""
        return len(self.first) - 1


def episodes(bench: Bench, threads: int, acquires: int, rng: np.random.Generator) -> Episodes:
    """A microbenchmark as episodes: `acquires` for each thread."""
    if threads < 1 or acquires < 1:
        raise InputError(f"found {threads} threads and {acquires} acquires; expected at least one of each")
    count = threads * acquires
    steps, lock = bench.drawn(rng, (count,))
    first = np.arange(0, count + 1, acquires, dtype=np.int64)
    nothing = np.zeros(count, np.int64)
    return Episodes(bench.locks, first, lock, nothing, steps * STEP_PS, np.full(count, bench.inside * STEP_PS, np.int64))
