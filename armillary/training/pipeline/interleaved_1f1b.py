"""Interleaved 1F1B: every rank has several chunks of layers, so that the pipeline fills in a fraction of the time.

A micro-batch passes through all ranks once per chunk. The bubble shrinks by the number of chunks v; transfers and activations in flight
grow.

Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .chunks.packed import packed_plan
from .chunks.work import ChunkPlan, SequenceWork
from .orders.interleaved import interleaved
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class Interleaved1F1B(Technique):
    """1F1B with several chunks per rank, whose number is the best of those allowed. Megatron-LM, SC 2021."""

    chunks: tuple[int, ...] = parameter((2, 3, 4, 6), "numbers of chunks per rank to try", range=(2, 64))

    takes = frozenset({"layered", "sequences"})

    def plan(self, work: LayeredWork | SequenceWork) -> StagePlan | ChunkPlan:
        """The fastest number of chunks and option of recomputation that fit."""
        if isinstance(work, SequenceWork):
            return packed_plan(work, "interleaved", self.chunks)
        return plain_plan(work, "interleaved", lambda v: interleaved(work.ranks, work.micros, v), self.chunks)
