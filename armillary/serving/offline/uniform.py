"""Uniform gives every device the same number of layers, all at the highest single precision that fits.

This is what a serving system does that ignores differences between devices: layers are dealt evenly in the cluster's order, and one
micro-batch size serves both phases (the batch over the devices). It is the baseline of LLM-PQ (arXiv 2403.01136, 2024) and SplitQuant
(2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.plan import Plan, halved_until_it_fits, plan_of, problem_of
from .planning.problem import DoesNotFit, even, flat
from .workload import OfflineWork


@dataclass(frozen=True)
class Uniform(Technique):
    """Deals layers evenly at the highest single precision that fits; the usual baseline, 2024."""

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work."""
        order = work.devices[: work.model.layers]
        counts = even(work.model.layers, len(order))

        def make(batch: int) -> Plan:
            size = -(-batch // len(order))
            problem = problem_of(work, order, size, size, batch=batch)
            for bit in reversed(range(len(work.bits))):
                choice = flat(problem, counts, bit)
                if problem.feasible(choice):
                    return plan_of(work, order, choice, size, size, batch=batch, predicted_s=problem.seconds(choice))
            raise DoesNotFit(f"{work.model.name} does not fit {work.cluster.name} evenly, at any of {work.bits} bits")

        return halved_until_it_fits(work, make)
