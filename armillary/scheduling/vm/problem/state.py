"""What a technique sees at one instant: the metrics of the VMs, where they are, and the hosts.

A host's features are sums and means over its VMs, so that those of a host without one of its VMs are exact and cost one subtraction.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .fleet import Floats, Hosts, Ints
from .metrics import HOST_FEATURES, VM, VM_FEATURES

Singles = npt.NDArray[np.float32]
#: The most VMs of a host that a set holds; the largest are kept.
MOST_SET = 64
WIDTH_V, WIDTH_P = len(VM_FEATURES), len(HOST_FEATURES)


@dataclass(frozen=True)
class State:
    """VMs and hosts at the end of an hour."""

    #: [vms, 20], as `VM_FEATURES` says; rows of VMs that are not there are not looked at.
    x: Floats
    #: The host of each VM, −1 for a VM that is not placed.
    host: Ints
    hosts: Hosts
    #: vCPUs and GB that each host may still promise, [hosts].
    free_vcpus: Floats
    free_gb: Floats
    #: The quality of service of each VM in the last hour, NaN where it is not known.
    qos: Floats

    @cached_property
    def residents(self) -> tuple[Ints, Ints]:
        """(VMs in the order of their hosts, where each host's VMs begin)."""
        order = np.argsort(self.host, kind="stable")
        return order, np.searchsorted(self.host[order], np.arange(len(self.hosts) + 1)).astype(np.int64)

    @cached_property
    def parts(self) -> Floats:
        """What each VM adds to the sums of its host, [vms, 15]."""
        x = self.x
        vcpu, busy = x[:, VM["vcpu"]], x[:, VM["vcpu"]] * x[:, VM["cpu"]]
        columns = [np.ones(len(x)), vcpu, x[:, VM["memory_gb"]], busy, vcpu * x[:, VM["cpu_mean"]], vcpu * x[:, VM["cpu_p95"]]]
        columns += [busy * x[:, VM[name]] for name in ("steal", "ports", "l2_mpki", "llc_mpki")]
        columns += [x[:, VM[name]] for name in ("mem_gbps", "net_mbps", "disk_mbps")]
        return np.stack([*columns, busy * x[:, VM["core_bound"]], busy * x[:, VM["dram_bound"]]], axis=1)

    @cached_property
    def sums(self) -> Floats:
        """`parts` over the VMs of each host, [hosts, 15]."""
        here = self.host >= 0
        out = np.zeros((len(self.hosts), self.parts.shape[1]))
        for k in range(out.shape[1]):
            out[:, k] = np.bincount(self.host[here], self.parts[here, k], len(self.hosts))
        return out

    @cached_property
    def host_x(self) -> Floats:
        """The features of the hosts as they are, [hosts, 24]."""
        return self._features(np.arange(len(self.hosts)), self.sums)

    def without(self, vms: Ints) -> Floats:
        """The features of each VM's host without it, [vms, 24]."""
        own = self.host[vms]
        return self._features(own, np.maximum(self.sums[own] - self.parts[vms], 0.0))

    def _features(self, which: Ints, sums: Floats) -> Floats:
        h = self.hosts
        out = np.empty((len(which), WIDTH_P))
        hardware = (h.cores, h.threads, h.speed, h.llc_mb, h.memory_gb, h.bandwidth_gbps)
        for k, values in enumerate(hardware):
            out[:, k] = values[which]
        # All VMs have the same hour, those that are on no host too.
        out[:, 6:8] = self.x[0, VM["hour_sin"] : VM["hour_cos"] + 1] if len(self.x) else (0.0, 1.0)
        busy = np.maximum(sums[:, 3], 1e-9)
        out[:, 8:14] = sums[:, :6]
        out[:, 14] = sums[:, 3] / h.threads[which]
        out[:, 15] = sums[:, 6] / busy
        out[:, 16:22] = sums[:, 7:13]
        out[:, 22:] = sums[:, 13:] / busy[:, None]
        return out

    def sets(self, standard: Singles, hosts: Ints | None = None, without: Ints | None = None) -> tuple[Singles, npt.NDArray[np.bool_]]:
        """The VMs on each of some hosts, [sets, n, 20] of the rows of `standard`, and which of them are real, [sets, n].

        hosts: all by default. without: for each set the VM that is left out, −1 for none.
        """
        order, starts = self.residents
        which = np.arange(len(self.hosts)) if hosts is None else hosts
        first, count = starts[which], starts[which + 1] - starts[which]
        width = int(count.max()) if len(count) else 0
        place = np.arange(width)
        real = place[None, :] < count[:, None]
        index = order[np.minimum(first[:, None] + place[None, :], max(len(order) - 1, 0))] if width else np.zeros((len(which), 0), np.int64)
        if without is not None:
            real = real & (index != without[:, None])
        if width > MOST_SET:
            index, real = self._largest(index, real)
        return standard[index], real

    def _largest(self, index: Ints, real: npt.NDArray[np.bool_]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        many = int(real.sum(1).max())
        if many > MOST_SET:
            warnings.warn(f"found {many} VMs on a host; the largest {MOST_SET} are looked at", stacklevel=4)
        size = np.where(real, self.x[index, VM["vcpu"]], -1.0)
        keep = np.argsort(-size, axis=1, kind="stable")[:, :MOST_SET]
        return np.take_along_axis(index, keep, 1), np.take_along_axis(real, keep, 1)

