"""What was read becomes work: a population on hosts, judged in its last hours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.contention import draw_applications
from armillary.scheduling.vm.problem.fleet import built_in as built_in_hosts
from armillary.scheduling.vm.problem.metrics import READINGS, inferred, measured
from armillary.scheduling.vm.workload import DAYS, HOURS, Population, VmWork, draw_demand, packed

from .azure import BURSTY, AzureVms
from .tables import MetricTable

#: Hours of a table that are used, the last ones; and the share of them that is history.
MOST_HOURS, HISTORY = DAYS * HOURS, 0.85


def azure_work(vms: AzureVms, rng: np.random.Generator, *, hosts: int, begin_s: float, rounds: int, overcommit: float | None) -> VmWork:
    """VMs of an Azure trace on built-in hosts, with drawn pressures and sensitivities, and drawn CPU where there are no readings."""
    n = len(vms.vcpu)
    apps = draw_applications(rng, n, "mixed")
    seed = int(rng.integers(1 << 31))
    steady = draw_demand(rng, "interfering", n, np.ones(n) * 0.5)
    bursts = draw_demand(rng, "bursty", n, np.ones(n) * 0.5)
    jumpy = vms.cpu_p95 > BURSTY * np.maximum(vms.cpu_mean, 1e-6)
    demand = np.where(jumpy[:, None, None], bursts, steady)
    demand *= (vms.cpu_mean / np.maximum(demand.mean((1, 2)), 1e-6))[:, None, None].astype(np.float32)
    if vms.readings is not None:
        demand = np.where(np.isfinite(vms.readings), vms.readings, demand)
    demand = np.clip(demand, 0.0, 1.0).astype(np.float32)
    created = np.floor((vms.created_s - begin_s) / 3600).astype(np.int64)
    deleted = np.maximum(created + 1, np.ceil((vms.deleted_s - begin_s) / 3600).astype(np.int64))
    population = Population(
        vms.vcpu, vms.memory_gb, apps.pressure, apps.sensitivity, demand, np.maximum(created, 0), deleted,
        np.maximum(0.0, (begin_s - vms.created_s) / 86400), vms.names,
    )  # fmt: skip
    return packed(population, built_in_hosts(hosts), kind="trace", rounds=rounds, noise_seed=seed, overcommit=overcommit)


def table_work(table: MetricTable, rng: np.random.Generator, *, overcommit: float | None, where: str = "") -> VmWork:
    """The VMs of a table where they are; pressures and sensitivities are those that their metrics show."""
    last = float(table.time_s.max())
    # Hours are those of the clock, so that the last one is whole.
    begin = max(float(np.floor(table.time_s.min() / 3600)) * 3600, float(np.floor(last / 3600 + 1)) * 3600 - MOST_HOURS * 3600)
    hours = int(np.floor(last / 3600 + 1) - begin / 3600)
    if hours < 2:
        raise InputError(f"found metrics of {hours} hour; expected two hours at least", where=where or None)
    n = len(table.vms)
    slot = np.minimum(np.floor((table.time_s - begin) * READINGS / 3600).astype(np.int64), hours * READINGS - 1)
    ok = slot >= 0
    vm, slot, host = table.vm[ok], slot[ok], table.host[ok]
    if len(np.unique(vm)) < n:
        used = np.unique(vm)
        back = np.full(n, -1, np.int64)
        back[used] = np.arange(len(used))
        vm, n = back[vm], len(used)
        names = tuple(table.vms[i] for i in used)
    else:
        names = table.vms
    columns = {name: values[ok] for name, values in table.columns.items()}
    start = min(hours - 1, max(1, int(HISTORY * hours)))
    order = np.lexsort((slot, vm))
    first = np.searchsorted(vm[order], np.arange(n))
    # The last row of each VM before the test, or its first one.
    when = np.where(slot < start * READINGS, slot, -1)
    newest = np.lexsort((when, vm))
    at = newest[np.searchsorted(vm[newest], np.arange(n), side="right") - 1]
    cpu = np.full((n, hours * READINGS), np.nan, np.float32)
    cpu[vm, slot] = columns["cpu"]
    mean = {name: np.bincount(vm, values, n) / np.bincount(vm, minlength=n) for name, values in columns.items()}
    # A reading holds until the next one.
    index = np.maximum.accumulate(np.where(np.isnan(cpu), 0, np.arange(cpu.shape[1])), axis=1)
    cpu = np.take_along_axis(cpu, index, 1)
    demand = np.where(np.isnan(cpu), mean["cpu"][:, None], cpu).astype(np.float32).reshape(n, hours, READINGS)
    vcpu = np.maximum(1, np.round(columns["vcpu"][at])).astype(np.int64)
    busy = np.maximum(vcpu * mean["cpu"], 1e-3)
    if "mem_gbps" in mean:
        mean["busy_gbps"] = mean["mem_gbps"] / busy
    pressure, sensitivity = inferred(mean, n)
    created, ended = slot[order][first] // READINGS, np.array(np.maximum.reduceat(slot[order], first)) // READINGS
    begun = np.where(created <= start, 0, created)
    gone = np.where(ended >= hours - 2, hours + 1, ended + 1)
    population = Population(
        vcpu, columns["memory_gb"][at], pressure, sensitivity, demand, begun, gone, mean.get("age_days", np.zeros(n)), names
    )
    placed = np.where((begun <= start) & (gone > start), host[at], -1)
    work = packed(
        population, table.hosts, kind="table", rounds=hours - start, noise_seed=int(rng.integers(1 << 31)), start=start,
        overcommit=1.0 if overcommit is None else overcommit, clock=begin / 3600 % 24,
    )  # fmt: skip
    used_vcpus = np.bincount(placed[placed >= 0], vcpu[placed >= 0], len(table.hosts))
    # What hosts have promised already is allowed.
    needed = float((used_vcpus / table.hosts.threads).max()) if overcommit is None else work.overcommit
    own = {name: mean[name] for name in measured(pressure, sensitivity) if name in mean}
    return replace(work, host=placed, overcommit=max(needed, work.overcommit), own_metrics=own, ranked=min(100, n))


