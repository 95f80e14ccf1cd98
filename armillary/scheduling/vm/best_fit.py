"""Best fit: the host whose room is least and still suffices, so that other hosts keep room for large VMs.

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
        return np.tile(-state.free_vcpus, (len(vms), 1))


@dataclass(frozen=True)
class BestFit(Technique):
    """Hosts by the vCPUs that they have left, the fullest first."""

    def ranker(self, work: VmWork) -> Ranker:
        """The same order for every VM."""
        return _Ranker()
