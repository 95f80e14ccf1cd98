"""Repair pipelining: a chain of k helpers that passes partial sums on slice by slice.

Each helper adds its part to the partial sum that comes in and passes it on. With many slices in flight, the block comes back about as
fast as it could be read: R is the least of the uplinks on the chain, the downlinks except that of its first helper, and the destination's
downlink. The chain visits each rack once where it can, as the rack-aware form does.

Repair pipelining for erasure-coded storage (ECPipe), USENIX ATC 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import PIPELINE
from .plans.planner import DESTINATION, Ends, Part, Planner, Split


def best_chain(ends: Ends) -> tuple[float, list[int]]:
    """The rate of the best chain and its helpers, from first to last."""
    up, both = ends.up, np.minimum(ends.up, ends.down)
    # All helpers except the first need both directions; the first is the best uplink among the rest.
    order = np.lexsort((-up, -both))
    middle, rest = order[: ends.k - 1], order[ends.k - 1 :]
    first = int(rest[np.argmax(up[rest])])
    chosen = middle.tolist()
    rate = float(min(ends.into, up[first], both[middle].min(initial=np.inf)))
    # The downlink of the first helper is not needed, so the helper with the slowest downlink comes first.
    slow = min([first, *chosen], key=lambda i: ends.down[i])
    others = [i for i in [first, *chosen] if i != slow]
    own = int(ends.rack[slow])
    others.sort(key=lambda i: (ends.rack[i] != own, ends.rack[i] == ends.into_rack, ends.rack[i], i))
    return rate, [slow, *others]


@dataclass(frozen=True)
class Rp(Planner):
    """The best chain of k helpers (ATC 2017)."""

    name: ClassVar[str] = "rp"

    def split(self, ends: Ends) -> Split:
        """The rate is the minimum over the chosen u, the chosen d except the first, and d_r."""
        rate, chain = best_chain(ends)
        return Split(rate, PIPELINE, [Part(1.0, tuple(zip(chain, [*chain[1:], DESTINATION])))])
