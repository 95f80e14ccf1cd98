"""EPR order: the jobs that need the most entanglement go first, so that jobs of like duration share a slot.

The key of a job is the number of EPR pairs that it is expected to need (its gates between QPUs under the best cut, times its shots)
times the mean time of a pair. Waiting jobs are sorted by it, the largest first, and fill the slot on the QPUs with the most free qubits.

Advanced Scheduling Strategies for Distributed Quantum Computing Jobs, arXiv 2602.24152. The formula of the key is our design.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.placing import on_most_free
from .planning.strategy import Start, State, Strategy, filled


@dataclass(frozen=True)
class Epr(Strategy):
    """The largest EPR demand first."""

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        return filled(state, by_demand(state), on_most_free)


def by_demand(state: State) -> list[int]:
    """The waiting jobs, the largest EPR demand first; a larger priority comes before any demand."""
    return sorted(state.queue, key=lambda j: (-state.jobs[j].priority, -state.planner.demand_s(state.jobs[j])))
