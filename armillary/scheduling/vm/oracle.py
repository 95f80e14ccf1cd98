"""Oracle: knows the contention model and the next hour, and moves a VM to where all VMs together gain most.

It ranks hosts by the VM's own true QoS in the next hour. For a move it counts everybody: the QoS of the VMs on the target with and without
the newcomer, and of those on the source with and without it. Moves of one round are chosen one after the other as if they were alone,
so that it is no strict bound.

Deciding with a known future as a bound goes back to A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems Journal
1966. What is counted is our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .problem.fleet import Floats, Ints
from .problem.metrics import VM
from .problem.ranker import Ranker, Recommended, ranked
from .problem.state import State
from .workload import VmWork


class _Ranker(Ranker):
    predicts = True

    def __init__(self, work: VmWork) -> None:
        self.work, self.hour = work, work.start

    def look(self, hour: int) -> None:
        self.hour = hour

    def scores(self, state: State, vms: Ints) -> Floats:
        n = len(state.hosts)
        found = self.work.judge.pairs(self.hour, state.host, np.repeat(vms, n), np.tile(np.arange(n), len(vms)))
        return found.reshape(len(vms), n)

    def recommend(self, state: State, vms: Ints) -> Recommended:
        judge, n = self.work.judge, len(state.hosts)
        own = state.host[vms]
        rows = np.arange(len(vms))
        x = state.x[vms]
        room = (state.free_vcpus >= x[:, VM["vcpu"], None]) & (state.free_gb >= x[:, VM["memory_gb"], None])
        room[rows, own] = True
        which, target = np.nonzero(room)
        qos, total = judge.pairs_and_totals(self.hour, state.host, vms[which], target)
        here = state.host >= 0
        before = np.bincount(state.host[here], judge.played(self.hour, state.host).qos[here], n)
        # A source without its VM: all its others, each on a server of its own set.
        sets = [np.flatnonzero((state.host == source) & (np.arange(len(state.host)) != vm)) for vm, source in zip(vms, own)]
        server = np.repeat(rows, [len(one) for one in sets])
        left = np.bincount(server, judge.settled(self.hour, np.concatenate(sets), server, own).qos, len(vms))
        alone, gain = np.full(room.shape, -np.inf), np.full(room.shape, -np.inf)
        alone[which, target] = qos
        gain[which, target] = total - before[target] + (left - before[own])[which]
        gain[rows, own] = 0.0
        return ranked(gain, gain > 0, alone - alone[rows, own][:, None])


@dataclass(frozen=True)
class Oracle(Technique):
    """The true model of the next hour."""

    oracle = True

    def ranker(self, work: VmWork) -> Ranker:
        """Scores by the judge itself."""
        return _Ranker(work)
