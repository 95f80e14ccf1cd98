"""Fused programs with a fixed number of SMs that only communicate, 20 unless it is said otherwise.

Tiles pass through local memory and a flag. The number suits TMA, which 15 SMs saturate; reductions in the fabric, which registers drive,
would need 76 to send to one device, and so they are taken only where that is faster than TMA with the same SMs.

One of the two placements that ParallelKittens, arXiv 2511.13940 (2025), compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.plan import Plan, fastest, fused
from .programs.catalogue import REDUCING, program_for
from .programs.template import Tile, TileProgram
from .workload import OverlapWork


@dataclass(frozen=True)
class InterSmOnly(Technique):
    """Communicates on SMs of its own."""

    comm_sms: int = parameter(20, "SMs that only communicate", range=(1, 128))

    def plan(self, work: OverlapWork) -> Plan:
        """The program with communicator SMs."""
        reduces = work.operator.op in REDUCING and work.gpu.in_fabric and work.operator.devices > 1
        programs = [program_for(work.operator, Tile(), inter=True, fabric=fabric) for fabric in ((True, False) if reduces else (False,))]
        return fastest(fused(program, work.gpu, self.comm_sms) for program in programs)

    def real(self, work: OverlapWork, tile: Tile) -> TileProgram:
        """The program that runs on ranks of this machine."""
        return program_for(work.operator, tile, inter=True, fabric=work.operator.op in REDUCING)
