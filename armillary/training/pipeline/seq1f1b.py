"""Seq1F1B: 1F1B over slices of sequences, so that less is in flight and the pipeline fills faster.

Every pack of sequences is cut into the same number of slices of equal tokens. Forward passes go from the first slice to the last, backward
passes the other way round, because later slices hand gradients of keys and values to earlier ones.

Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .chunks.packed import fastest_chunks, sliced_candidates
from .chunks.work import ChunkPlan, SequenceWork


@dataclass(frozen=True)
class Seq1F1B(Technique):
    """1F1B over equally many equal slices of every pack. Seq1F1B, 2024."""

    slices: tuple[int, ...] = parameter((2, 4, 8, 16), "numbers of slices per pack to try", range=(1, 1024))

    takes = frozenset({"sequences"})

    def plan(self, work: SequenceWork) -> ChunkPlan:
        """The fastest number of slices, size of packs and option of recomputation that fit."""
        return fastest_chunks(work, sliced_candidates(work, self.slices), "seq1f1b")
