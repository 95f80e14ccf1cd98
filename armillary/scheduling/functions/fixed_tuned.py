"""The size that really meets the median deadline on a standard node, on the least loaded node: what manual tuning buys.

That sizes are tuned by hand, and often badly, is shown in Sizeless: predicting the optimal size of serverless functions, Middleware 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import TUNED, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class FixedTuned(Technique):
    """The owner's size, not misjudged."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(size=TUNED)
