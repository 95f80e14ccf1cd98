"""Least steal: the host whose VMs wait least in the run queue, and among equal ones the host with the smallest share of busy threads.

A VM moves only to a host that is better by this rule than its own without it. The rule is ours. Finding contention by a counter and moving
who suffers is that of CPI²: CPU performance isolation for shared compute clusters, EuroSys 2013, with another counter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .problem.fleet import Floats, Ints
from .problem.ranker import Ranker, Recommended, ranked
from .problem.state import State
from .workload import VmWork

#: Columns of a host's features.
LOAD, STEAL = 14, 15
#: Steal counts this many times as much as load, so that load decides between equal ones only.
WEIGHT = 1e3


class _Ranker(Ranker):
    def scores(self, state: State, vms: Ints) -> Floats:
        found = np.tile(-_waits(state.host_x), (len(vms), 1))
        placed = np.flatnonzero(state.host[vms] >= 0)
        found[placed, state.host[vms[placed]]] = -_waits(state.without(vms[placed]))
        return found

    def new_scores(self, state: State, vms: Ints) -> Floats:
        return np.tile(-_waits(state.host_x), (len(vms), 1))

    def recommend(self, state: State, vms: Ints) -> Recommended:
        found = self.scores(state, vms)
        better = found > found[np.arange(len(vms)), state.host[vms]][:, None]
        return ranked(found, better, np.broadcast_to((1.0 - state.qos[vms])[:, None], found.shape))


def _waits(x: Floats) -> Floats:
    return WEIGHT * x[:, STEAL] + x[:, LOAD]


@dataclass(frozen=True)
class LeastSteal(Technique):
    """Hosts by steal, then by load."""

    def ranker(self, work: VmWork) -> Ranker:
        """The same order for every VM."""
        return _Ranker()
