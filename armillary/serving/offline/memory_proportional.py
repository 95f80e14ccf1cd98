"""Memory-proportional gives each device layers in proportion to its memory, all at 4 bits.

People do this by hand with a mixed bag of GPUs and a `device_map`, for instance with Accelerate's balanced maps and a quantised model
(Hugging Face, 2022). Largest remainders decide where the shares are not whole, and a device that cannot hold its share passes a layer
on to the next one that can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.plan import Plan, halved_until_it_fits, plan_of, problem_of
from .planning.problem import DoesNotFit, flat
from .workload import OfflineWork


@dataclass(frozen=True)
class MemoryProportional(Technique):
    """Deals layers in proportion to memory at one precision, as people do by hand with `device_map` (2022)."""

    bits: int = parameter(4, "bits of every layer; the nearest precision that the work allows is taken", choices=(2, 3, 4, 8, 16))

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work."""
        order = work.devices[: work.model.layers]
        bit = min(range(len(work.bits)), key=lambda b: abs(work.bits[b] - self.bits))

        def make(batch: int) -> Plan:
            size = -(-batch // len(order))
            problem = problem_of(work, order, size, size, batch=batch)
            counts = shares(problem.budget, work.model.layers, problem.memory[:, bit].max())
            choice = flat(problem, counts, bit) if sum(counts) == work.model.layers else None
            if choice is None or not problem.feasible(choice):
                raise DoesNotFit(f"{work.model.name} does not fit {work.cluster.name} in proportion to memory at {work.bits[bit]} bits")
            return plan_of(work, order, choice, size, size, batch=batch, predicted_s=problem.seconds(choice))

        return halved_until_it_fits(work, make)


def shares(budget: np.ndarray, layers: int, largest: float) -> list[int]:
    """Returns layers per device in proportion to its budget, at least one and no more than fit; fewer than `layers` if all are full."""
    room = np.maximum(budget, 0.0)
    exact = layers * room / max(room.sum(), 1e-300)
    counts = np.maximum(1, np.floor(exact).astype(int))
    most = np.maximum(1, np.floor(room / largest).astype(int))
    counts = np.minimum(counts, most)
    while counts.sum() < layers:
        left = np.where(counts < most, exact - counts, -np.inf)
        if not np.isfinite(left).any():
            break
        counts[int(left.argmax())] += 1
    while counts.sum() > layers:
        over = np.where(counts > 1, counts - exact, -np.inf)
        counts[int(over.argmax())] -= 1
    return [int(c) for c in counts]
