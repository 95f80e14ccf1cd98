"""Why not there? What makes the predicted QoS of a VM differ between two hosts, feature by feature, in words for an operator's ticket.

The logit of q̂ is integrated along the straight line from the features of one host to those of the other (integrated gradients), so that
the parts add up to the whole difference. The set of VMs on a host counts as one feature, by its pooled vector.

Axiomatic Attribution for Deep Networks, ICML 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError, one_line
from armillary.scheduling.vm.learning.standard import standardised
from armillary.scheduling.vm.learning.towers import Towers
from armillary.scheduling.vm.problem.fleet import Floats
from armillary.scheduling.vm.problem.metrics import HOST_FEATURES
from armillary.scheduling.vm.problem.state import WIDTH_V, State
from armillary.scheduling.vm.recommender import Host, Recommender, Vm, state_of

#: Points on the line, and the step of central differences in standardised features.
POINTS, STEP = 64, 1e-2
#: Features in an operator's words.
WORDS = {
    "cores": "cores", "threads": "hardware threads", "speed": "speed", "llc_mb": "MB of last-level cache", "host_memory_gb": "GB of memory",
    "bandwidth_gbps": "GB/s of memory bandwidth", "vms": "VMs", "vcpus": "vCPUs promised", "used_gb": "GB of memory promised",
    "busy": "busy threads", "busy_mean": "busy threads over the day", "busy_p95": "busy threads at the 95th percentile",
    "load": "busy threads as a share", "host_steal": "steal", "all_ports": "issue slots used", "all_l2": "L2 misses",
    "all_llc": "LLC misses",
    "all_gbps": "GB/s of memory traffic", "all_net": "MB/s of network traffic", "all_disk": "MB/s of disk traffic",
    "mean_core_bound": "share of slots lost in the core", "mean_dram_bound": "share of slots lost to memory",
    "host_hour_sin": "hour", "host_hour_cos": "hour",
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """One feature: what it adds to the QoS on the other host, and its value on both. The set of VMs has no values (NaN)."""

    feature: str
    effect: float
    here: float
    there: float

    def __str__(self) -> str:
        if np.isnan(self.here):
            return f"{self.effect:+.3f} from which VMs are on it"
        return f"{self.effect:+.3f} from {WORDS.get(self.feature, self.feature)} ({self.there:.3g} instead of {self.here:.3g})"


def why_not(recommender: Recommender, vm: Vm, hosts: Sequence[Host], here: str, there: str, *, hour: float = 12.0) -> list[Reason]:
    """The reasons why a VM's predicted QoS on `there` differs from that on `here`, the largest first; their effects add up to it."""
    names = [host.name for host in hosts]
    for name in (here, there):
        if name not in names:
            raise InputError(f'found the host "{one_line(name, 40)}"; expected one of the hosts')
    state, number = state_of(hosts, [vm], hour=hour)
    return reasons(recommender.ranker.towers, state, number[vm.name], names.index(here), names.index(there))


def reasons(towers: Towers, state: State, vm: int, here: int, there: int) -> list[Reason]:
    """The same for a VM and two hosts of a state, by number."""
    standard = towers.standard(state.x)
    e_v = towers.encode_vms(standard[[vm]]).astype(np.float64)[0]
    ends = [_described(towers, state, standard, vm, host) for host in (here, there)]
    (x0, z0, raw0), (x1, z1, raw1) = ends
    line = (np.arange(POINTS) + 0.5)[:, None] / POINTS
    x, z = x0 + line * (x1 - x0), z0 + line * (z1 - z0)
    effect = np.zeros(len(x0) + 1)
    for i in np.flatnonzero(x1 != x0).tolist():
        nudge = np.zeros(len(x0))
        nudge[i] = STEP
        slope = (_logit(towers, e_v, x + nudge, z) - _logit(towers, e_v, x - nudge, z)) / (2 * STEP)
        effect[i] = slope.mean() * (x1 - x0)[i]
    total = _logit(towers, e_v, x1[None], z1[None])[0] - _logit(towers, e_v, x0[None], z0[None])[0]
    # The logit is linear in the pooled vector, whose part is what the features leave.
    effect[-1] = total - effect[:-1].sum() if len(z0) else 0.0
    q0, q1 = (1 / (1 + np.exp(-_logit(towers, e_v, x[None], z[None])[0])) for x, z in ((x0, z0), (x1, z1)))
    scale = (q1 - q0) / total if abs(total) > 1e-12 else 0.0
    names = [name for name, _ in HOST_FEATURES]
    found = [Reason(name, float(effect[i] * scale), float(raw0[i]), float(raw1[i])) for i, name in enumerate(names)]
    if len(z0):
        found.append(Reason("set", float(effect[-1] * scale), float("nan"), float("nan")))
    return sorted((one for one in found if one.effect), key=lambda one: -abs(one.effect))


def _described(towers: Towers, state: State, standard: object, vm: int, host: int) -> tuple[Floats, Floats, Floats]:
    """(standardised features, pooled set, features) of a host without the VM."""
    only = np.array([vm])
    inside = state.host[vm] == host
    raw = state.without(only)[0] if inside else state.host_x[host]
    x = standardised(raw, towers.mean[WIDTH_V:], towers.scale[WIDTH_V:]).astype(np.float64)
    if towers.set is None:
        return x, np.zeros(0), raw
    sets, real = state.sets(standard, np.array([host]), only if inside else None)  # type: ignore[arg-type]
    return x, np.asarray(towers.set(sets, real), np.float64)[0], raw


def _logit(towers: Towers, e_v: Floats, x: Floats, z: Floats) -> Floats:
    """The logit of q̂ for rows of standardised host features and pooled sets."""
    a = {name: array.astype(np.float64) for name, array in towers.arrays.items()}
    e_p = towers.host(x.astype(np.float32)).astype(np.float64)
    if z.shape[-1]:
        e_p = np.concatenate([e_p, z], -1) @ a["join.weight"].T + a["join.bias"]
    return np.asarray((e_v @ a["matrix"]) @ e_p.T + e_v @ a["u"] + e_p @ a["w"] + a["bias"], np.float64)
