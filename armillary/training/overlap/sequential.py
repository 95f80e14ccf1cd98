"""The operator as a textbook writes it: the product, then the library's collective, on one stream.

Kernels fill all SMs, the library's call moves the whole tensor at once with registers (24 SMs, as NCCL's channels), an all-reduce takes the
reduction in the fabric where that is faster, and nothing overlaps.

Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019, runs its layers like this.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning import baselines
from .planning.plan import Plan
from .programs.template import Tile
from .workload import OverlapWork


@dataclass(frozen=True)
class Sequential(Technique):
    """Computes, then communicates."""

    def plan(self, work: OverlapWork) -> Plan:
        """The schedule of one stream."""
        return baselines.sequential(work.operator, work.gpu, Tile())
