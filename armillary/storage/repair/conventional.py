"""Conventional repair: the destination fetches k whole blocks and decodes.

k flows share the destination's downlink, so the block comes back at R = min(d_r / k, the k-th largest uplink). HDFS and Ceph do this by
default, and Rashmi and others measured the traffic that it causes (HotStorage 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import STAR
from .plans.planner import DESTINATION, Ends, Part, Planner, Split


@dataclass(frozen=True)
class Conventional(Planner):
    """The k best uplinks send straight to the destination, as in HDFS-RAID (Rashmi and others 2013)."""

    name: ClassVar[str] = "conventional"

    def split(self, ends: Ends) -> Split:
        """The rate is min(d_r / k, the k-th largest u)."""
        best = np.argsort(-ends.up, kind="stable")[: ends.k]
        edges = tuple((int(i), DESTINATION) for i in best)
        return Split(min(ends.into / ends.k, float(ends.up[best[-1]])), STAR, [Part(1.0, edges)])
