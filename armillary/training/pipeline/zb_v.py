"""ZB-V: two chunks per rank in the shape of a V, and split backward passes, leave almost no bubble.

Rank r has stages r and 2p − 1 − r. The last stage stands beside the first, so the first backward pass starts early, and every rank holds
equally many activations.

Pipeline Parallelism with Controllable Memory, NeurIPS 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .orders.v_shaped import zb_v_order
from .planning.layers import LayeredWork, StagePlan
from .planning.plain import plain_plan


@dataclass(frozen=True)
class ZbV(Technique):
    """The order of torch's ScheduleZBVZeroBubble on balanced stages. Pipeline Parallelism with Controllable Memory, NeurIPS 2024."""

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest option of recomputation that fits."""
        return plain_plan(work, "zb-v", lambda _: zb_v_order(work.ranks, work.micros), (2,))
