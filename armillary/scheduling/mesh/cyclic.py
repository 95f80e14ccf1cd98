"""Cyclic: deal the blocks out in turn along the curve, block b to rank b mod r.

Nothing is measured. What makes blocks costly (a front, a vortex) lies close together on the curve, so neighbours on different ranks share
it out, also if nobody knows yet where it will be in the next step. In exchange, nearly every ghost exchange becomes a message.

The distribution of dense linear algebra: ScaLAPACK Users' Guide, SIAM 1997.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .octree.mesh import Ints
from .placement.policy import Policy, State, checked


@dataclass(frozen=True)
class Cyclic(Policy):
    """Deals blocks out in turn, whatever they cost."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return np.arange(len(checked(state.costs, state.ranks))) % state.ranks
