"""As soon as possible: `epr-nodes` without slots.

Whenever a job ends or arrives, free qubits are offered to the waiting jobs at once, in order of key · (1 + age / mean latency), where the
key is the EPR demand and the latency that of the jobs that are done. Each job gets the QPUs that `epr-nodes` would choose.

Advanced Scheduling Strategies for Distributed Quantum Computing Jobs, arXiv 2602.24152. The weight of the age is our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, parameter

from .planning.placing import on_best_links, on_most_free
from .planning.strategy import Start, State, Strategy, filled

SLOTTED = ("fifo", "list", "resource-priority", "epr", "epr-nodes")
WHY = "the abstract has no figure; above 60 % slots would stand empty most of the time"
JUDGED = Kind("batch")


@dataclass(frozen=True)
class Asap(Strategy):
    """Freed qubits are offered at once."""

    age_weight: float = parameter(1.0, "how much a wait of one mean latency adds to the key; 0 ignores the age", range=(0.0, 1000.0))
    by_demand: bool = parameter(True, "whether jobs with a large EPR demand go first; otherwise they go in queue order")
    by_links: bool = parameter(True, "whether QPUs are chosen by their links; otherwise those with the most free qubits")

    slots = False
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("makespan_s", over=SLOTTED, by=Gain(percent=(0, None)), on=JUDGED, honest=(5, 60), part=0, why=WHY,
              says="a shorter makespan than every slot strategy", source="paper"),
        Claim("latency_mean_s", over=SLOTTED, by=Gain(percent=(0, None)), on=JUDGED, honest=(5, 60), part=0, why=WHY,
              says="a shorter mean latency than every slot strategy", source="paper"),
        Claim("makespan_s", over=(*SLOTTED, "ppo"), by=Gain(ratio=(1.0, None)), on=JUDGED, source="ours",
              says="a shorter makespan than every other strategy"),
        Claim("makespan_s", over="epr", by=Gain(ratio=(1 / 1.1, None)), on=Kind("misfit"), source="ours",
              says="at most 10 % slower than epr where the rates that it is told belong to other links"),
    )  # fmt: skip

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        place = on_best_links if self.by_links else on_most_free
        if not self.by_demand:
            return filled(state, state.queue, place)
        room = sum(state.free)
        # Only jobs that could fit are sorted; what is free only shrinks.
        queue = [j for j in state.queue if state.jobs[j].qubits <= room]
        key = np.array([state.planner.demand_s(state.jobs[j]) for j in queue])
        if self.age_weight and state.latency_s > 0:
            age = state.now_s - np.array([state.jobs[j].arrival_s for j in queue])
            key = key * (1 + self.age_weight * age / state.latency_s)
        first = np.array([-state.jobs[j].priority for j in queue])
        return filled(state, [queue[i] for i in np.lexsort((-key, first)).tolist()], place)
