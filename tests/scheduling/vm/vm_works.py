"""Small clouds, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.scheduling.contention import Model
from armillary.scheduling.vm.problem.fleet import Hosts
from armillary.scheduling.vm.problem.metrics import VM_FEATURES
from armillary.scheduling.vm.recommender import Host, Vm
from armillary.scheduling.vm.workload import Population, VmWork

HOURS = 6


def hosts(count: int = 2, *, cores: int = 4, threads: int = 8, memory_gb: float = 64.0) -> Hosts:
    """Equal hosts of one socket."""
    ones = np.ones(count)
    return Hosts(
        tuple(f"h{i}" for i in range(count)), ones.astype(np.int64), np.full(count, cores), np.full(count, threads), ones, 20 * ones,
        memory_gb * ones, 100 * ones,
    )  # fmt: skip


def work(
    vcpu: list[int], host: list[int], *, fleet: Hosts | None = None, pressure: Any = 0.5, sensitivity: Any = 0.5, cpu: Any = 0.5, rounds: int = 3,
    overcommit: float = 4.0, start: int = 2, created: list[int] | None = None, deleted: list[int] | None = None, **how: Any,
) -> VmWork:  # fmt: skip
    """VMs of these sizes on these hosts, with the same pressures, sensitivities and CPU unless told."""
    n = len(vcpu)
    demand = np.empty((n, HOURS, 12), np.float32)
    demand[:] = np.broadcast_to(np.asarray(cpu, np.float32).reshape(-1, 1, 1), demand.shape)
    p, s = (np.broadcast_to(np.atleast_2d(np.asarray(one, np.float64).T).T, (n, 5)).copy() for one in (pressure, sensitivity))
    population = Population(
        np.array(vcpu, np.int64), 2.0 * np.array(vcpu, np.float64), p, s, demand, np.array(created or [0] * n, np.int64),
        np.array(deleted or [HOURS + 1] * n, np.int64), np.zeros(n),
    )  # fmt: skip
    return VmWork(
        population, fleet or hosts(max(host) + 1), overcommit, np.array(host, np.int64), "by hand", how.pop("model", Model()), start, rounds, **how
    )


def metrics(vcpu: float = 4.0, **changes: float) -> dict[str, float]:
    """A VM's metrics in the middle of what is usual."""
    found = {
        "vcpu": vcpu, "memory_gb": 2 * vcpu, "cpu": 0.3, "cpu_mean": 0.3, "cpu_p95": 0.45, "steal": 0.0, "cpi": 1.4, "ports": 0.4,
        "l2_mpki": 17.0, "llc_mpki": 7.0, "mem_gbps": 0.6 * vcpu, "net_mbps": 40.0, "disk_mbps": 25.0, "core_bound": 0.26,
        "l2_bound": 0.22, "llc_bound": 0.19, "dram_bound": 0.22, "age_days": 10.0,
    }  # fmt: skip
    assert {name for name, _ in VM_FEATURES} - {"hour_sin", "hour_cos"} == set(found)
    return found | changes


def cloud(loads: list[int]) -> list[Host]:
    """Hosts with so many VMs of 4 vCPUs each."""
    return [Host(f"h{h}", [Vm(f"h{h}-{i}", metrics(cpu=0.3 + 0.02 * i)) for i in range(many)]) for h, many in enumerate(loads)]
