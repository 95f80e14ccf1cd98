"""The best slots by integer programming, for at most eight jobs: HiGHS assigns jobs and their QPUs to slots.

x[j, s, p] ∈ {0, 1} puts job j into slot s with placement p, one of the placements that `epr-nodes` weighs on the empty network. A slot
takes as long as its slowest job is expected to: minimise Σ_s T_s with T_s ≥ Σ_p expected_jp · x[j, s, p], no QPU over its data qubits
in any slot, slots in order of falling T_s. The optimum is that of the planner's model, not of the judge, and only over schedules in slots.

HiGHS: Parallelizing the dual revised simplex method, Mathematical Programming Computation 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase, parameter

from .epr_nodes import EprNodes
from .planning.placing import best_sets
from .planning.planner import Placement
from .planning.strategy import Start, State, Strategy

MOST_JOBS = 8


@dataclass(frozen=True)
class Milp(Strategy):
    """Jobs and QPUs by slot with the least planned makespan."""

    placements: int = parameter(20, "placements per job that are offered to the solver", range=(1, 100))
    nodes: int = parameter(20_000, "nodes of the search tree after which the best solution is taken", range=(1, 10_000_000))

    takes = frozenset({"exact"})

    def select(self, state: State) -> list[Start]:
        """The jobs of the longest slot of the best plan for the waiting jobs."""
        if len(state.queue) > MOST_JOBS:
            raise NotForThisCase(f"takes at most {MOST_JOBS} waiting jobs")
        return self.slots_of(state)[0]

    def slots_of(self, state: State) -> list[list[Start]]:
        """The slots of the best plan for the waiting jobs, the longest first."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        jobs, planner, free = list(state.queue), state.planner, np.array(state.free)
        slots = _slots_of_a_heuristic(state)
        offered: list[list[Placement]] = [best_sets(planner, state.jobs[j].circuit, state.free, self.placements) for j in jobs]
        taken = [[planner.expected_s(state.jobs[j], p) for p in ps] for j, ps in zip(jobs, offered)]
        scale = max(max(one) for one in taken)
        columns = [(j, s, p) for j in range(len(jobs)) for s in range(slots) for p in range(len(offered[j]))]
        number = {column: i for i, column in enumerate(columns)}
        rows: list[tuple[dict[int, float], float, float]] = []
        for j in range(len(jobs)):
            rows.append(({number[j, s, p]: 1.0 for s in range(slots) for p in range(len(offered[j]))}, 1.0, 1.0))
            for s in range(slots):
                time = {number[j, s, p]: -taken[j][p] / scale for p in range(len(offered[j]))}
                rows.append((time | {len(columns) + s: 1.0}, 0.0, np.inf))
        for s in range(slots):
            for qpu in range(len(free)):
                used = {number[j, s, p]: float(size) for j, s2, p in columns if s2 == s
                        for q, size in zip(offered[j][p].qpus, offered[j][p].sizes) if q == qpu}  # fmt: skip
                if used:
                    rows.append((used, -np.inf, float(free[qpu])))
            if s:
                rows.append(({len(columns) + s - 1: 1.0, len(columns) + s: -1.0}, 0.0, np.inf))
        entries = [(value, row, column) for row, (cells, _, _) in enumerate(rows) for column, value in cells.items()]
        values, at_row, at_column = zip(*entries)
        matrix = coo_array((values, (at_row, at_column)), (len(rows), len(columns) + slots)).tocsr()
        options: Any = {"node_limit": self.nodes}
        found = milp(
            np.concatenate([np.zeros(len(columns)), np.ones(slots)]),
            integrality=np.concatenate([np.ones(len(columns)), np.zeros(slots)]),
            constraints=LinearConstraint(matrix, np.array([r[1] for r in rows]), np.array([r[2] for r in rows])),
            bounds=Bounds(0, np.concatenate([np.ones(len(columns)), np.full(slots, np.inf)])), options=options,
        )  # fmt: skip
        if found.x is None:
            raise NotForThisCase(f"HiGHS found no plan within {self.nodes:,} nodes")
        plan: list[list[Start]] = [[] for _ in range(slots)]
        for (j, s, p), value in zip(columns, found.x):
            if value > 0.5:
                plan[s].append((jobs[j], offered[j][p]))
        return [slot for slot in plan if slot]


def _slots_of_a_heuristic(state: State) -> int:
    """The slots that `epr-nodes` would take, which are enough."""
    left, slots = list(state.queue), 0
    while left:
        chosen = {j for j, _ in EprNodes().select(State(state.now_s, state.network, state.planner, state.jobs, left, state.free))}
        left, slots = [j for j in left if j not in chosen], slots + 1
    return slots
