"""Conventional repair: the destination fetches k whole blocks and decodes.

k flows share the destination's downlink, so the block comes back at R = min(d_r / k, the k-th largest uplink). That is what HDFS and
Ceph do by default, and the traffic it causes was measured by Rashmi and others (HotStorage 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import STAR
from .plans.planner import DESTINATION, Ends, Part, Planner, Split


@dataclass(frozen=True)
class Conventional(Planner):
    """k best uplinks straight to the destination; HDFS-RAID's way, Rashmi and others 2013."""

    name: ClassVar[str] = "conventional"

    def split(self, ends: Ends) -> Split:
        """Rate: min(d_r / k, k-th largest u)."""
        best = np.argsort(-ends.up, kind="stable")[: ends.k]
        edges = tuple((int(i), DESTINATION) for i in best)
        return Split(min(ends.into / ends.k, float(ends.up[best[-1]])), STAR, [Part(1.0, edges)])
