"""Switch tree: the switch adds up the blocks of one fixed set of k helpers.

The k best uplinks send, the switch combines, and the destination receives the block once, so R = min(d_r, the k-th largest uplink). This
is in-network decoding as NetEC does it, without drawing on the helpers beyond k.

NetEC: accelerating erasure coding with programmable switches (Qiao and others), IEEE TPDS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import PIPELINE
from .plans.planner import Ends, Part, Planner, Split


@dataclass(frozen=True)
class SwitchTree(Planner):
    """The k best uplinks, combined in flight in the manner of NetEC (TPDS 2022)."""

    name: ClassVar[str] = "switch-tree"

    def split(self, ends: Ends) -> Split:
        """The rate is min(d_r, the k-th largest u)."""
        best = np.argsort(-ends.up, kind="stable")[: ends.k]
        return Split(min(ends.into, float(ends.up[best[-1]])), PIPELINE, [Part(1.0, helpers=tuple(best.tolist()))])
