"""DualPipeV: the forward pass of one chunk and the backward pass of another run as a pair, which hides the communication of experts.

The layout is ZB-V's. Pairs overlap computation with the exchange of tokens between experts; where that is hidden anyway, as here,
pairing only delays results.

DeepSeek-V3 Technical Report, 2024, with the V-shaped variant that its authors published in 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase, Technique

from .orders.v_shaped import dualpipe_v_order
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class DualPipeV(Technique):
    """The order of torch's ScheduleDualPipeV on balanced stages. DeepSeek, 2025."""

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest option of recomputation that fits; it needs at least 2p micro-batches."""
        if work.micros < 2 * work.ranks:
            raise NotForThisCase(f"DualPipeV needs at least {2 * work.ranks} micro-batches on {work.ranks} ranks; there are {work.micros}")
        return plain_plan(work, "dualpipe-v", lambda _: dualpipe_v_order(work.ranks, work.micros), (2,))
