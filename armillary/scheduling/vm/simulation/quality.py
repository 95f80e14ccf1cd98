"""The judge: quality of service of VMs by the contention model, at vCPU granularity, a few instants per hour.

QoS = 1/slowdown, where the slowdown is that of busy sibling threads, of the socket's caches and memory bandwidth, and of the run queue
when more vCPUs are busy than there are hardware threads. Techniques never see the model; they see metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.scheduling.contention import Applications, Fleet, Model, Topology, settle_floating
from armillary.scheduling.vm.problem.fleet import Floats, Hosts, Ints

#: The most VMs that are settled in one call, so that memory stays bounded.
MOST_SETTLED = 100_000
#: QoS is computed at every third of the twelve readings of an hour (ours).
EVERY = 3
USUAL = Model()
#: And the most hosts, because a fleet has at most 4 million threads.
MOST_THREADS = 2_000_000


class Quality(NamedTuple):
    """Means over the instants of an hour: QoS, the slowdown without the run queue, and the share of the time spent waiting in it."""

    qos: Floats
    slow: Floats
    steal: Floats


@dataclass(frozen=True)
class Judge:
    """What is true about VMs and hosts, and what follows from a placement."""

    hosts: Hosts
    vcpu: Ints
    pressure: Floats
    sensitivity: Floats
    #: CPU that each vCPU wants alone at speed 1, as a share, [vms, hours, readings].
    demand: npt.NDArray[np.float32]
    model: Model = USUAL

    @cached_property
    def _applications(self) -> Applications:
        return Applications.of(self.pressure, self.sensitivity)

    @cached_property
    def _kinds(self) -> tuple[tuple[Topology, ...], Ints]:
        h = self.hosts
        rows = np.stack([h.sockets, h.cores // h.sockets, h.threads // h.cores, h.speed], axis=1)
        kinds, which = np.unique(rows, axis=0, return_inverse=True)
        made = tuple(Topology.regular(int(s), int(c), int(t), speed=float(speed)) for s, c, t, speed in kinds)
        return made, which.reshape(-1).astype(np.int64)

    def settled(self, hour: int, vm: Ints, server: Ints, host: Ints) -> Quality:
        """The quality of VMs [n] on servers [n] that stand for hosts [servers], each server by itself; averaged over the hour."""
        topologies, kind = self._kinds
        qos, slow, steal = np.zeros(len(vm)), np.zeros(len(vm)), np.zeros(len(vm))
        if not len(vm):
            return Quality(qos, slow, steal)
        fleet = Fleet(topologies, kind[host])
        at = range(0, self.demand.shape[2], EVERY)
        for k in at:
            wanted = self.demand[vm, hour, k].astype(np.float64) * self.vcpu[vm]
            found = settle_floating(self._applications, fleet, vm, wanted, server, self.vcpu[vm], self.model)
            busy = found.slow_core * found.slow_socket
            qos += 1.0 / (busy * found.wait)
            slow += busy
            steal += 1.0 - 1.0 / found.wait
        return Quality(qos / len(at), slow / len(at), steal / len(at))

    def played(self, hour: int, host: Ints) -> Quality:
        """The quality of every VM where it is; QoS is NaN for those that are not placed."""
        here = np.flatnonzero(host >= 0)
        out = Quality(np.full(len(host), np.nan), np.ones(len(host)), np.zeros(len(host)))
        every = np.arange(len(self.hosts))
        for low, high in self._chunks(host[here]):
            part = here[(host[here] >= low) & (host[here] < high)]
            found = self.settled(hour, part, host[part] - low, every[low:high])
            for target, values in zip(out, found):
                target[part] = values
        return out

    def pairs(self, hour: int, host: Ints, vms: Ints, targets: Ints) -> Floats:
        """QoS of vms[i] if it were on targets[i] and all others where they are, [n]."""
        return self.pairs_and_totals(hour, host, vms, targets)[0]

    def pairs_and_totals(self, hour: int, host: Ints, vms: Ints, targets: Ints) -> tuple[Floats, Floats]:
        """`pairs`, and the summed QoS of all VMs on targets[i] with vms[i] among them, both [n]."""
        own_qos, total = np.empty(len(vms)), np.empty(len(vms))
        for start, stop, members, server, own in self._with(host, vms, targets):
            found = self.settled(hour, members, server, targets[start:stop])
            own_qos[start:stop] = found.qos[own]
            total[start:stop] = np.bincount(server, found.qos, stop - start)
        return own_qos, total

    def _with(self, host: Ints, vms: Ints, targets: Ints) -> list[tuple[int, int, Ints, Ints, Ints]]:
        """Chunks of pairs: (start, stop, VMs on the servers, their servers, where vms[start:stop] stand among them)."""
        order = np.argsort(host, kind="stable")
        starts = np.searchsorted(host[order], np.arange(len(self.hosts) + 1))
        count = np.diff(starts)
        each = max(1, min(MOST_SETTLED // (int(count.max()) + 1), MOST_THREADS // int(self.hosts.threads.max())))
        found = []
        for start in range(0, len(vms), each):
            v, p = vms[start : start + each], targets[start : start + each]
            many = count[p]
            server = np.repeat(np.arange(len(v)), many)
            within = np.arange(len(server)) - np.repeat(np.cumsum(many) - many, many)
            members = order[np.repeat(starts[p], many) + within]
            others = members != v[server]
            members, server = np.concatenate([members[others], v]), np.concatenate([server[others], np.arange(len(v))])
            own = np.arange(len(members) - len(v), len(members))
            found.append((start, start + len(v), members, server, own))
        return found

    def _chunks(self, host: Ints) -> list[tuple[int, int]]:
        counts = np.bincount(host, minlength=len(self.hosts))
        found, low, vms, threads = [], 0, 0, 0
        for m in range(len(counts)):
            if m > low and (vms + counts[m] > MOST_SETTLED or threads + self.hosts.threads[m] > MOST_THREADS):
                found.append((low, m))
                low, vms, threads = m, 0, 0
            vms, threads = vms + int(counts[m]), threads + int(self.hosts.threads[m])
        return [*found, (low, len(counts))]
