"""Chimera: two copies of the model run through the ranks in opposite directions and fill each other's bubbles.

Each copy takes half of the micro-batches. Every rank holds two stages' worth of weights, and the copies' gradients are added at the end.
The directions are merged by a list scheduler under several rules, of which the simulator takes the fastest; with b = 2f it reaches the
published bubble of (p − 2)/(3m/2 + p − 2).

Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines, SC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase, Technique

from .planning.layers import LayeredWork, StagePlan
from .planning.two_way import two_way_plan


@dataclass(frozen=True)
class Chimera(Technique):
    """Two directions, merged by list scheduling on balanced stages. Chimera, SC 2021."""

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest rule and option of recomputation that fit; the number of micro-batches must be even."""
        if work.micros % 2:
            raise NotForThisCase(f"two directions need an even number of micro-batches; there are {work.micros}")
        return two_way_plan(work, reuse=1, order="chimera")
