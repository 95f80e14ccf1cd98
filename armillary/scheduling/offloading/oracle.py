"""Oracle: the best backend for every request with all requests known, switches paid for.

It minimises value·Σ latency + pod seconds × price over all ways to route requests, by dynamic programming over requests with one state per
backend and backlog. It starts the other pod just in time, so a switch costs money and no time. A second of waiting is worth a GPU second
by default.

Dynamic programming over two servers with switching costs: metrical task systems, Journal of the ACM 1992.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.arena import NotForThisCase, Technique, parameter

from .functions.curves import PRICES

if TYPE_CHECKING:
    from .simulation.play import Played
    from .workload import OffloadingWork


@dataclass(frozen=True)
class Oracle(Technique):
    """Knows every request, and routes each to the backend that is best in the end."""

    oracle: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"simulated"})

    value_usd_per_s: float = parameter(PRICES[1], "what a second of a request's latency is worth", range=(0.0, 1e6))

    def play(self, work: OffloadingWork) -> Played:
        """Plans with all requests known, and plays the plan."""
        from .simulation.plan import MOST_PLANNED, follow, plan

        most = int(np.diff(work.offsets).max())
        if most > MOST_PLANNED:
            raise NotForThisCase(f"plans at most {MOST_PLANNED:,} requests of one function, and this has {most:,}")
        return follow(work, plan(work, self.value_usd_per_s).backend)
