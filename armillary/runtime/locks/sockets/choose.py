"""Which lock this machine would rather have: a probe of a few milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError
from armillary.runtime.locks.arena import locks as arena
from armillary.runtime.locks.threads.bench import Measured, cores, measure
from armillary.runtime.locks.workload import Bench

#: Seconds of the whole probe of one lock, and in how many windows per number of threads they are spent.
PROBE_S, WINDOWS = 0.05, 5
#: A window in which a thread got less than this share of what another got says what a thread that is alone would get.
EVEN = 0.25
CANDIDATES = ("ticket", "hapax", "pthread")


@dataclass(frozen=True)
class Choice:
    """The kind that was fastest at the number of threads asked for, and acquires per second by kind and number of threads."""

    kind: str
    curve: dict[str, dict[int, float]]

    def table(self) -> str:
        """The curve as text, with one row per number of threads."""
        counts = sorted(next(iter(self.curve.values())))
        rows = ["threads  " + "  ".join(f"{kind:>12}" for kind in self.curve)]
        rows += [f"{count:7}  " + "  ".join(f"{rates[count] / 1e6:9.3f} M/s" for rates in self.curve.values()) for count in counts]
        return "\n".join(rows)


def choose(
    bench: Bench | None = None, *, threads: int | None = None, wait: str | None = None, kinds: Sequence[str] = CANDIDATES,
    seconds: float = PROBE_S,
) -> Choice:  # fmt: skip
    """Runs each kind for `seconds` at 1, 2, 4 … threads, as many as asked for, and picks the fastest at the last.

    Without `bench` sections are short and nothing lies between them, which is the most contention there can be. Threads that outnumber
    the cores sleep. The kinds take turns in short windows, of which the median counts, so that a moment in which another program has a
    core decides nothing. The order in which threads get in is not looked at: `kinds` can leave out those that keep none.
    """
    most = len(cores()) if threads is None else threads
    if most < 1 or not kinds or not 0 < seconds <= 60:
        raise InputError(f"found {most} threads, {len(kinds)} kinds and {seconds} s; expected at least one of each, and 0 to 60 s")
    counts = sorted({min(1 << k, most) for k in range(most.bit_length() + 1)})
    policies = {count: wait or ("spin" if count <= len(cores()) else "park") for count in counts}
    work, window = bench or Bench(), seconds / (len(counts) * WINDOWS)
    made: dict[str, Any] = {kind: arena.make(kind) for kind in kinds}
    for lock in made.values():
        for policy in set(policies.values()):
            measure(lock, work, 1, wait=policy, acquires=10)  # It compiles.
    curve: dict[str, dict[int, float]] = {kind: {} for kind in made}
    for count in counts:
        runs: dict[str, list[Measured]] = {kind: [] for kind in made}
        for turn in range(WINDOWS):
            for kind, lock in made.items():
                runs[kind].append(measure(lock, work, count, wait=policies[count], seconds=window, seed=turn))
        for kind in made:
            curve[kind][count] = typical(runs[kind])
    return Choice(max(curve, key=lambda kind: curve[kind][most]), curve)


def typical(runs: Sequence[Measured]) -> float:
    """The median rate of the runs in which all threads ran; of all runs if there is none."""
    even = [one for one in runs if one.fairness >= EVEN]
    return statistics.median(one.acquires_per_s for one in even or runs)
