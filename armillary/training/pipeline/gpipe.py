"""GPipe: all micro-batches run forward, then all run backward.

It is the simplest pipeline, and keeps the activations of every micro-batch until its backward pass, so its memory grows with their number.

GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .orders.one_way import gpipe_order
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class Gpipe(Technique):
    """All forward passes, then all backward passes, on balanced stages with one option of recomputation. GPipe, NeurIPS 2019."""

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest option of recomputation that fits."""
        return plain_plan(work, "gpipe", lambda _: gpipe_order(work.ranks, work.micros))
