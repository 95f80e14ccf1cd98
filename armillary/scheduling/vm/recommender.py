"""TRACE by itself: hosts for a VM, from the metrics of your own cloud.

    recommender = Trace.load()                                        # the shipped towers
    found = recommender.recommend(vm, hosts, k=10)                    # Recommendation(hosts, scores, keep)
    recommender = Trace.fit("metrics.csv", "hosts.csv")               # goes on training on your own metrics
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.learn import Model

from .learning.towers import Towers
from .problem.fleet import Floats, Hosts, Ints
from .problem.fleet import built_in as built_in_hosts
from .problem.metrics import VM, VM_FEATURES
from .problem.state import State

if TYPE_CHECKING:
    from .readers.tables import MetricTable
    from .trace import Trace

#: What a host is if its description does not say: one of the preset's.
HARDWARE = ("sockets", "cores", "threads", "speed", "llc_mb", "memory_gb", "bandwidth_gbps")
#: Metrics that are 0 if they are not given.
DEFAULTS = {"age_days": 0.0, "steal": 0.0}


@dataclass(frozen=True)
class Vm:
    """A VM and its metrics: vcpu, memory_gb, cpu, cpu_mean, cpu_p95, steal, cpi, ports, l2_mpki, llc_mpki, mem_gbps, net_mbps, disk_mbps,
    core_bound, l2_bound, llc_bound, dram_bound and age_days."""

    name: str
    metrics: Mapping[str, float]
    #: QoS in the last hour, if it is known.
    qos: float = 1.0


@dataclass(frozen=True)
class Host:
    """A host, the VMs on it, and its hardware: sockets, cores, threads, speed, llc_mb, memory_gb, bandwidth_gbps."""

    name: str
    vms: Sequence[Vm] = ()
    hardware: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Recommendation:
    """The best hosts for a VM: names, predicted QoS in [0, 1], and whether each is worth it. `source` is where the VM is now."""

    hosts: tuple[str, ...]
    scores: tuple[float, ...]
    keep: tuple[bool, ...]
    source: str = ""

    @property
    def best(self) -> str:
        """The first host that is worth it; the source, or nothing for a new VM, if there is none."""
        return next((name for name, ok in zip(self.hosts, self.keep) if ok), self.source)


class Recommender:
    """Trained towers with the gate and the mask of a `Trace`."""

    def __init__(self, how: Trace, model: Model) -> None:
        from .trace import TraceRanker

        self.how, self.model = how, model
        self.ranker = TraceRanker(Towers(model), how)

    def recommend(self, vm: Vm, hosts: Sequence[Host], k: int = 10, *, hour: float = 12.0, overcommit: float = math.inf) -> Recommendation:
        """The `k` best hosts for a VM. If it is on one of them, that is the source, and others are kept only if the move is worth it.

        hour: of the day, in [0, 24). overcommit: vCPUs that a hardware thread may promise; hosts without room are not listed.
        """
        if k < 1:
            raise InputError(f"found {k}; expected at least 1", where="k")
        state, number = state_of(hosts, [vm], hour=hour, overcommit=overcommit)
        at = number[vm.name]
        only = np.array([at])
        source = int(state.host[at])
        room = (state.free_vcpus >= state.x[at, VM["vcpu"]]) & (state.free_gb >= state.x[at, VM["memory_gb"]])
        if source >= 0:
            found = self.ranker.recommend(state, only)
            scores = self.ranker.scores(state, only)[0]
            order, keep = found.hosts[0], found.keep[0]
            room[source] = False
        else:
            scores = self.ranker.new_scores(state, only)[0].astype(np.float64)
            order, keep = np.argsort(-scores, kind="stable"), np.ones(len(hosts), bool)
        listed = [(int(h), bool(ok)) for h, ok in zip(order, keep) if room[h]][:k]
        return Recommendation(
            tuple(hosts[h].name for h, _ in listed), tuple(float(scores[h]) for h, _ in listed), tuple(ok for _, ok in listed),
            hosts[source].name if source >= 0 else "",
        )  # fmt: skip

    def predict(self, vms: Sequence[Vm], hosts: Sequence[Host], *, hour: float = 12.0) -> Floats:
        """The QoS that each VM would have on each host, [vms, hosts]; a host that has the VM already is scored without it."""
        state, number = state_of(hosts, vms, hour=hour)
        return np.asarray(self.ranker.scores(state, np.array([number[vm.name] for vm in vms], np.int64)), np.float64)

    def fit(self, metrics: Any, hosts: Any = None) -> Recommender:
        """A recommender that has gone on training on observed QoS: a table with every metric and a column `qos`, as a path or as read.

        Only the hosts on which VMs were are known, so that the ranking loss has nothing to learn from; the shipped ranking stays the start.
        """
        from .learning.logged import fitted
        from .readers.tables import MetricTable, read_metrics

        table: MetricTable = metrics if isinstance(metrics, MetricTable) else read_metrics(metrics, hosts, every_metric=True)
        return Recommender(self.how, fitted(self.model, table, epochs=self.how.epochs))

    def save(self, path: str | Path) -> str:
        """Writes the model for `Trace.load(path)`; returns its SHA-256."""
        return replace(self.model, technique="scheduling/vm/trace").save(path)


def state_of(hosts: Sequence[Host], further: Sequence[Vm], *, hour: float, overcommit: float = math.inf) -> tuple[State, dict[str, int]]:
    """Hosts with their VMs, and further VMs that are on none unless they have the name of one, as a state; and each VM's number."""
    if not hosts:
        raise InputError("found no hosts; expected at least one")
    if not 0 <= hour < 24:
        raise InputError(f"found {hour:g}; expected 0 to 24", where="hour")
    number: dict[str, int] = {}
    rows: list[Vm] = []
    place: list[int] = []
    for h, host in enumerate(hosts):
        for vm in host.vms:
            if vm.name in number:
                first = hosts[place[number[vm.name]]].name
                both = f"{one_line(first, 40)} and {one_line(host.name, 40)}"
                raise InputError(f'found "{one_line(vm.name, 40)}" on {both}; expected one host')
            number[vm.name] = len(rows)
            rows.append(vm)
            place.append(h)
    for vm in further:
        if vm.name not in number:
            number[vm.name] = len(rows)
            rows.append(vm)
            place.append(-1)
    x = matrix(rows, hour)
    fleet = fleet_of(hosts)
    at: Ints = np.array(place, np.int64)
    here = at >= 0
    vcpus = np.bincount(at[here], x[here, VM["vcpu"]], len(hosts))
    used = np.bincount(at[here], x[here, VM["memory_gb"]], len(hosts))
    room: Floats = np.full(len(hosts), np.inf) if math.isinf(overcommit) else fleet.room(overcommit)
    qos = np.array([vm.qos for vm in rows], np.float64)
    return State(x, at, fleet, room - vcpus, fleet.memory_gb - used, qos), number


def matrix(vms: Sequence[Vm], hour: float) -> Floats:
    """The features of VMs, [vms, 20]; raises InputError for a metric that is missing, unknown or no finite number."""
    x = np.empty((len(vms), len(VM_FEATURES)))
    known = {name for name, _ in VM_FEATURES}
    angle = 2 * math.pi * hour / 24
    clock = {"hour_sin": math.sin(angle), "hour_cos": math.cos(angle)}
    for i, vm in enumerate(vms):
        strange = sorted(set(vm.metrics) - known)
        if strange:
            said = f'found the metric "{one_line(str(strange[0]), 40)}"; expected those of the model'
            raise InputError(said, where=one_line(vm.name, 40))
        for k, (name, _) in enumerate(VM_FEATURES):
            value = clock.get(name, vm.metrics.get(name, DEFAULTS.get(name)))
            if value is None:
                raise InputError(f"found no metric {name}; expected every metric of the model", where=one_line(vm.name, 40))
            x[i, k] = value if isinstance(value, int | float) else math.nan
        if not np.isfinite(x[i]).all():
            bad = VM_FEATURES[int(np.argmax(~np.isfinite(x[i])))][0]
            raise InputError(f"{bad}: found {vm.metrics.get(bad)!r}; expected a finite number", where=one_line(vm.name, 40))
    return x


def fleet_of(hosts: Sequence[Host]) -> Hosts:
    """Hosts as arrays; what is not said is as in the preset."""
    usual = built_in_hosts(1)
    columns: dict[str, Any] = {}
    for host in hosts:
        strange = sorted(set(host.hardware) - set(HARDWARE))
        if strange:
            raise InputError(f'found "{one_line(str(strange[0]), 40)}"; expected {", ".join(HARDWARE)}', where=one_line(host.name, 40))
    for name in HARDWARE:
        default = getattr(usual, name)
        columns[name] = np.array([host.hardware.get(name, default[0]) for host in hosts]).astype(default.dtype)
    return Hosts(tuple(host.name for host in hosts), **columns)
