"""ZB-H1: the gradients of weights fill the bubble, because nobody waits for them.

The backward pass is split into the gradient of the input, which the stage before needs, and that of the weights, which can wait.
Rank r does the second r micro-batches late, so that it has work while the pipeline drains. Activations in flight are those of 1F1B's first
rank on every rank.

Zero Bubble Pipeline Parallelism, ICLR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .chunks.packed import packed_plan
from .chunks.work import ChunkPlan, SequenceWork
from .orders.one_way import zb_h1_order
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class ZbH1(Technique):
    """1F1B with gradients of weights put off. Zero Bubble Pipeline Parallelism, ICLR 2024."""

    takes = frozenset({"layered", "sequences"})

    def plan(self, work: LayeredWork | SequenceWork) -> StagePlan | ChunkPlan:
        """The fastest option of recomputation that fits."""
        if isinstance(work, SequenceWork):
            return packed_plan(work, "zb-h1")
        return plain_plan(work, "zb-h1", lambda _: zb_h1_order(work.ranks, work.micros))
