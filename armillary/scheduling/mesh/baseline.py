"""Baseline: cut the space-filling curve into pieces of equally many blocks, whatever they cost. AMR frameworks do this by default.

Parthenon, a performance portable block-structured adaptive mesh refinement framework, IJHPCA 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .contiguous import contiguous
from .octree.mesh import Ints
from .placement.policy import Policy, State, checked


@dataclass(frozen=True)
class Baseline(Policy):
    """Cuts the curve as if all blocks cost the same."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return contiguous(np.ones(len(checked(state.costs, state.ranks))), state.ranks)
