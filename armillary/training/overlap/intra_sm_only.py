"""Fused programs that communicate from compute SMs alone: storers send tiles, and one warp per SM drives TMA.

No SM is lost, but a warp beside a product has no registers for reductions in the fabric. An all-reduce then adds tiles to their owner,
which multicasts the sum (`two-shot`), or adds every tile to every device (`one-shot`); the faster one by simulation is taken.

One of the two placements that ParallelKittens, arXiv 2511.13940 (2025), compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.plan import Plan, fastest, fused
from .programs.catalogue import program_for
from .programs.template import Tile, TileProgram
from .workload import OverlapWork


@dataclass(frozen=True)
class IntraSmOnly(Technique):
    """Communicates inside compute SMs."""

    style: Literal["best", "two-shot", "one-shot"] = parameter("best", "how gemm_ar adds up; best is the faster by simulation")

    def plan(self, work: OverlapWork) -> Plan:
        """The program with communicators in compute SMs."""
        styles = [self.style] if self.style != "best" else ["two-shot", "one-shot"] if work.operator.op == "gemm_ar" else [""]
        programs = [program_for(work.operator, Tile(), inter=False, fabric=False, style=style) for style in styles]
        return fastest(fused(program, work.gpu, 0) for program in programs)

    def real(self, work: OverlapWork, tile: Tile) -> TileProgram:
        """The program that runs on ranks of this machine."""
        style = "" if self.style == "best" else self.style
        return program_for(work.operator, tile, inter=False, fabric=False, style=style)
