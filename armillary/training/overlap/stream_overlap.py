"""Asynchronous tensor parallelism: the operator in pieces on two streams, so that a piece's collective runs beside the next one's kernel.

The library's call takes its 24 SMs from the kernel beside it, small pieces pay for its staging buffers, and every piece's kernel ends
with a wave that is not full. The number of pieces is the best of 1, 2, 4, 8 and 16 by simulation, or there is no overlap at all where that
is faster.

Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models, ASPLOS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .planning import baselines
from .planning.decomposed import pieces_of
from .planning.plan import Plan
from .programs.template import Tile
from .workload import OverlapWork


@dataclass(frozen=True)
class StreamOverlap(Technique):
    """Overlaps whole kernels with library calls."""

    pieces: int = parameter(0, "pieces of the operator; 0 takes the best by simulation", range=(0, 1024))

    def plan(self, work: OverlapWork) -> Plan:
        """The schedule of two streams."""
        most = pieces_of(work.operator, Tile())
        if self.pieces > most:
            raise InputError(f"stream-overlap.pieces: found {self.pieces}; {work.operator.op} of this size has at most {most} pieces")
        return baselines.stream_overlap(work.operator, work.gpu, Tile(), self.pieces)
