"""HEFT with tiers: tasks by decreasing upward rank, each on the tier and node where it ends first.

The rank of a stage's tasks is the longest way to the end, in mean seconds over the tiers. A task's end on a tier counts the copies that its
inputs need from where they are, its reads, computation and writes at the stage's concurrency, and the cores of the node. The tier that most
tasks of a stage took is the stage's choice. Configurations are ordered by the length of the schedule on their nodes plus their distance to
its choices, where a stage that differs counts with the seconds between its fastest and its slowest tier. That sum is also its promise.

Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing, IEEE TPDS 2002; tiers and distance are our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase

from .planning.configurations import Layout
from .planning.costs import Costs
from .planning.ranker import Planning, Ranker, Ranking
from .stages.workflow import Floats, Ints

#: The most tasks per stage that are scheduled one by one; the rest of a larger stage is alike.
MOST_TASKS = 512


@dataclass(frozen=True)
class Heft(Ranker):
    """Prefers configurations near the one that list scheduling picks."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        if not planning.costs:
            raise NotForThisCase("needs costs, and the table has only makespans")
        cores = planning.machine.cores if planning.machine is not None else 64
        options, layout = planning.options, planning.layout
        distance, length = np.zeros(len(options)), np.zeros(len(options))
        for cost in planning.costs:
            rows = options.nodes == cost.nodes
            choice, end = list_schedule(layout, cost, cores)
            moved = np.array([float(np.ptp(cost.read[s] + cost.write[s])) for s in range(len(layout.stages))])
            distance[rows] = np.round((options.tier[rows] != choice) @ np.maximum(moved, 1e-9), 9)
            length[rows] = end
        seconds = np.round(length + distance, 9)
        return Ranking(seconds, seconds)


def list_schedule(layout: Layout, cost: Costs, cores: int) -> tuple[Ints, float]:
    """The tier of each stage that most of its tasks take, and the end of the schedule in seconds."""
    count = len(layout.stages)
    mean = (cost.read + cost.write).mean(1) + cost.compute
    upward = np.zeros(count)
    for s in sorted(range(count), key=lambda s: -layout.order[s]):
        upward[s] = mean[s] + max((upward[o] for o in layout.after[s]), default=0.0)
    free = np.zeros((cost.nodes, cores))
    choice, end_of = np.full(count, -1, np.int64), np.zeros(count)
    for s in sorted(range(count), key=lambda s: (-upward[s], layout.order[s], s)):
        # Predecessors have higher ranks, so their tiers are known.
        ready = max((end_of[p] for p in layout.before[s]), default=0.0)
        tiers = np.array([_seconds(s, t, choice, layout, cost) for t in range(len(layout.tiers))])
        votes = np.zeros(len(layout.tiers), np.int64)
        for n in range(min(layout.tasks[s], MOST_TASKS)):
            node = n % cost.nodes
            core = int(free[node].argmin())
            start = max(ready, float(free[node, core]))
            best = int((start + tiers).argmin())
            votes[best] += 1
            free[node, core] = start + tiers[best]
            end_of[s] = max(end_of[s], start + tiers[best])
        choice[s] = int(votes.argmax())
    return choice, float(end_of.max(initial=0.0))


def _seconds(s: int, t: int, choice: Ints, layout: Layout, cost: Costs) -> float:
    """Seconds of a stage's task on a tier, copies from the tiers of its predecessors included."""
    fetched = layout.initial[s] or any(choice[p] == layout.shared for p in layout.before[s])
    copies: Floats = np.array([float(cost.stage_out[p, choice[p], t]) for p in layout.before[s] if choice[p] >= 0])
    before = float(copies.max(initial=0.0)) + (float(cost.stage_in[s, t]) if t != layout.shared and fetched else 0.0)
    return before + float(cost.read[s, t] + cost.compute[s] + cost.write[s, t] + cost.flush[s, t])
