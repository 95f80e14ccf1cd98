"""First fit: the first host with room, in the order of the fleet.

Worst-Case Performance Bounds for Simple One-Dimensional Packing Algorithms, SIAM Journal on Computing 1974.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .problem.fleet import Floats, Ints
from .problem.ranker import Ranker
from .problem.state import State
from .workload import VmWork


class _Ranker(Ranker):
    def scores(self, state: State, vms: Ints) -> Floats:
        return np.tile(-np.arange(len(state.hosts), dtype=np.float64), (len(vms), 1))


@dataclass(frozen=True)
class FirstFit(Technique):
    """Hosts by number."""

    def ranker(self, work: VmWork) -> Ranker:
        """The same order for every VM."""
        return _Ranker()
