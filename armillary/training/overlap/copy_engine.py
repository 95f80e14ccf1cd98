"""Decomposed kernels whose pieces are moved by copy engines: no SM is lost, but every copy is launched by the host.

A product is computed for one owner after the other, and each part is copied while the next one is computed; copy engines cannot add, so a
kernel of the owner adds what has arrived. The number of pieces is the best of 1, 2, 4, 8 and 16 by simulation. Copies go to one device
or, by multicast, to all; a free engine takes the first copy that may begin.

Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models, ASPLOS 2023, decomposes like this.
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
class CopyEngine(Technique):
    """Overlaps kernels with copies that need no SM."""

    pieces: int = parameter(0, "pieces of the operator; 0 takes the best by simulation", range=(0, 1024))

    def plan(self, work: OverlapWork) -> Plan:
        """The schedule of kernels and copies."""
        most = pieces_of(work.operator, Tile(), by_owner=True)
        if self.pieces > most:
            raise InputError(f"copy-engine.pieces: found {self.pieces}; {work.operator.op} of this size has at most {most} pieces")
        return baselines.copy_engine(work.operator, work.gpu, Tile(), self.pieces)
