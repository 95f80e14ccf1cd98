"""1F1B: after a warm-up, every rank does one backward and one forward pass in turn.

The step takes as long as GPipe's, but rank r holds the activations of at most p − r micro-batches, however many there are.
Batches of sequences are packed to the longest of them, and every micro-batch is one pack.

Memory-Efficient Pipeline-Parallel DNN Training (PipeDream-Flush), ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .chunks.packed import packed_plan
from .chunks.work import ChunkPlan, SequenceWork
from .orders.one_way import one_f_one_b_order
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class OneFOneB(Technique):
    """One forward, one backward, on balanced stages with one option of recomputation. PipeDream-Flush, ICML 2021."""

    takes = frozenset({"layered", "sequences"})

    def plan(self, work: LayeredWork | SequenceWork) -> StagePlan | ChunkPlan:
        """The fastest option of recomputation that fits."""
        if isinstance(work, SequenceWork):
            return packed_plan(work, "1f1b")
        return plain_plan(work, "1f1b", lambda _: one_f_one_b_order(work.ranks, work.micros))
