"""Resource priority: a slot takes the jobs that fill the most qubits.

Of the first 12 waiting jobs, the subset that uses the most data qubits is found by dynamic programming (a 0/1 knapsack); among equals, the
one with more jobs, then the one with older jobs.

Advanced Scheduling Strategies for Distributed Quantum Computing Jobs, arXiv 2602.24152. The window and the ties are our design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, parameter

from .planning.placing import on_most_free
from .planning.strategy import Start, State, Strategy, filled


@dataclass(frozen=True)
class ResourcePriority(Strategy):
    """The subset of the first jobs that fills the most qubits."""

    window: int = parameter(12, "waiting jobs among which the subset is chosen", range=(1, 60))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("makespan_s", over=("fifo", "list"), by=Gain(percent=(0, None)), on=Kind("batch"), honest=(0, 40), source="paper",
              why="the abstract has no figure; above 40 % a slot would hold twice the jobs", says="a shorter makespan by filling QPUs"),
        Claim("qpu_utilisation", over=("fifo", "list"), by=Gain(percent=(0, None)), on=Kind("batch"), honest=(0, 40), source="paper",
              why="the abstract has no figure; above 40 % a slot would hold twice the jobs", says="higher utilisation"),
    )  # fmt: skip

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        first = state.queue[: self.window]
        chosen = fullest([state.jobs[j].qubits for j in first], sum(state.free))
        return filled(state, [first[i] for i in chosen], on_most_free)


def fullest(sizes: Sequence[int], room: int) -> list[int]:
    """The subset with the largest sum up to `room`; then the most members, then the earliest ones."""
    # (sum, members, bits with the earliest member as the highest), by sum.
    best: dict[int, tuple[int, int, int]] = {0: (0, 0, 0)}
    for i, size in enumerate(sizes):
        bit = 1 << (len(sizes) - 1 - i)
        for used, members, bits in sorted(best.values(), reverse=True):
            if used + size <= room:
                found = (used + size, members + 1, bits | bit)
                best[used + size] = max(best.get(used + size, (0, 0, 0)), found)
    bits = max(best.values())[2]
    return [i for i in range(len(sizes)) if bits >> (len(sizes) - 1 - i) & 1]
