"""Adabits takes the best quality that fits, whatever it costs in time.

A mixed-integer program over layers, devices and bits minimises Σω within every device's memory and ignores speed. It is the adaptive
quantisation half of the published planner, and the starting point of its heuristic (LLM-PQ, arXiv 2403.01136, 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.ilp import Solver, solve
from .planning.plan import Plan, halved_until_it_fits, plan_of, problem_of
from .planning.problem import Choice, Problem
from .workload import UNGROUPED, Device, OfflineWork


@dataclass(frozen=True)
class Adabits(Technique):
    """Takes the least Σω that fits and ignores speed (LLM-PQ's adaptive quantisation alone, 2024)."""

    group: int = parameter(0, "layers that share a device and bits; 0: one, or two above 40 layers", range=(0, 64))
    limit_s: float = parameter(10.0, "seconds for the solver", range=(0.1, 3600))
    solver: Solver = parameter("auto", "the interface to HiGHS: scipy, highspy, or auto, which is scipy")

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work."""
        order: Sequence[Device] = work.devices[: work.model.layers]
        group = max(work.group, self.group or (2 if work.model.layers > UNGROUPED else 1))

        def make(batch: int) -> Plan:
            size = -(-batch // len(order))
            problem = problem_of(work, order, size, size, batch=batch, group=group)
            choice, how = best_quality(problem, self.limit_s, self.solver)
            return plan_of(work, order, choice, size, size, batch=batch, group=group, predicted_s=problem.seconds(choice), solver=how)

        return halved_until_it_fits(work, make)


def best_quality(problem: Problem, limit_s: float = 20.0, solver: Solver = "auto", gap: float = 1e-4) -> tuple[Choice, str]:
    """Returns the choice of least Σω that fits, and the solver that found it."""
    found = solve(problem, only_quality=True, limit_s=limit_s, solver=solver, gap=gap)
    return found.choice, found.solver
