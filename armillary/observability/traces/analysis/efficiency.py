"""Multiplicative efficiencies of hosts and devices: each is a product of factors, and each factor has one reason.

For ranks i = 1..n with elapsed time E, useful time U (outside of MPI and of waits for the device) and offload time W (inside such waits):

    host parallel efficiency = sum U / (n E) = MPI x offload
    offload = sum U / sum(U + W)
    MPI = sum(U + W) / (n E) = load balance [sum(U + W) / (n max(U + W))] x communication [max(U + W) / E]

For devices j = 1..m with computing time K and time M in copies and collectives during which nothing computes:

    device parallel efficiency = sum K / (m E) = load balance [sum K / (m max K)] x communication [max K / max(K + M)]
                                 x orchestration [max(K + M) / E]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..run.model import CALL, HOST, KERNEL, MPI, Run
from .intervals import both, either, union, without
from .lost import activities
from .regions import Region, region_of
from .waiting import waits

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Hosts:
    """Efficiency of the host processes; every factor lies in [0, 1]."""

    parallel: float
    mpi: float
    load_balance: float
    communication: float
    offload: float


@dataclass(frozen=True)
class Devices:
    """Efficiency of the devices; every factor lies in [0, 1]. `scaling` needs a reference run and may exceed 1."""

    parallel: float
    load_balance: float
    communication: float
    orchestration: float
    scaling: float | None = None


@dataclass(frozen=True)
class Efficiency:
    """The efficiency of a run or of a region, and how long that took (ns)."""

    hosts: Hosts
    devices: Devices
    host_elapsed_ns: int
    device_elapsed_ns: int
    occurrences: int = 1

    def __str__(self) -> str:
        d, h = self.devices, self.hosts
        return (
            f"devices {d.parallel:.1%} = load balance {d.load_balance:.1%} x communication {d.communication:.1%} x orchestration "
            f"{d.orchestration:.1%}; hosts {h.parallel:.1%} = MPI load balance {h.load_balance:.1%} x MPI communication "
            f"{h.communication:.1%} x offload {h.offload:.1%}"
        )


def host_efficiency(useful: Sequence[float] | Array, offload: Sequence[float] | Array, elapsed: float) -> Hosts:
    """The factors for ranks with these useful and offload times, all in one unit of time."""
    u, w = np.asarray(useful, float), np.asarray(offload, float)
    if not len(u) or elapsed <= 0 or (u + w).max() <= 0:
        return Hosts(0.0, 0.0, 0.0, 0.0, 0.0)
    n, busy = len(u), u + w
    balance, communication = float(busy.sum() / (n * busy.max())), float(busy.max() / elapsed)
    share = float(u.sum() / busy.sum())
    return Hosts(balance * communication * share, balance * communication, balance, communication, share)


def device_efficiency(computing: Sequence[float] | Array, exposed: Sequence[float] | Array, elapsed: float) -> Devices:
    """The factors for devices with these computing times and exposed copies and collectives, all in one unit of time."""
    k, m = np.asarray(computing, float), np.asarray(exposed, float)
    if not len(k) or elapsed <= 0 or k.max() <= 0:
        return Devices(0.0, 0.0, 0.0, 0.0)
    balance = float(k.sum() / (len(k) * k.max()))
    communication, orchestration = float(k.max() / (k + m).max()), float((k + m).max() / elapsed)
    return Devices(balance * communication * orchestration, balance, communication, orchestration)


def efficiency(run: Run, *, region: str | None = None, reference: Run | None = None) -> Efficiency:
    """The efficiency of a run, or of the ranges of NVTX called `region` in it, against a `reference` run where there is one."""
    where = region_of(run, region)
    useful, offload = _host_times(run, where)
    computing, exposed = _device_times(run, where)
    devices = device_efficiency(computing, exposed, where.device.length)
    if reference is not None:
        ours, theirs = kernel_times(run, where), kernel_times(reference, region_of(reference, region))
        common = ours.keys() & theirs.keys()
        spent = sum(ours[name] for name in common)
        scaling = sum(theirs[name] for name in sorted(common)) / spent if spent else None
        devices = Devices(devices.parallel, devices.load_balance, devices.communication, devices.orchestration, scaling)
    hosts = host_efficiency(useful, offload, where.host.length)
    return Efficiency(hosts, devices, where.host.length, where.device.length, where.occurrences)


def _device_times(run: Run, where: Region) -> tuple[Array, Array]:
    computing, exposed = [], []
    for one in activities(run):
        computing.append(both(one.computing, where.device).length)
        exposed.append(both(without(either(one.communicating, one.copying), one.computing), where.device).length)
    return np.array(computing, float), np.array(exposed, float)


def _host_times(run: Run, where: Region) -> tuple[Array, Array]:
    """Useful and offload time of each process's busiest thread, which is the one that makes most calls."""
    calls, mpi, waiting = run.of(CALL), run.of(MPI), waits(run)
    counts = np.zeros(len(run.threads), np.int64)
    for spans in (calls, mpi):
        counts += np.bincount(spans.thread, minlength=len(run.threads))
    useful, offload = [], []
    for process in range(len(run.processes)):
        mine = [k for k, one in enumerate(run.threads) if one.process == process and one.device == HOST]
        if not mine:
            continue
        thread = max(mine, key=lambda k: (counts[k], -k))
        inside, own = mpi.thread == thread, waiting & (calls.thread == thread)
        in_mpi = both(union(mpi.start[inside], mpi.end[inside]), where.host)
        waited = without(both(union(calls.start[own], calls.end[own]), where.host), in_mpi).length
        offload.append(waited)
        useful.append(where.host.length - in_mpi.length - waited)
    return np.array(useful, float), np.array(offload, float)


def kernel_times(run: Run, where: Region | None = None) -> Mapping[str, float]:
    """Nanoseconds by the name of computing kernels, over all devices; only those that start in the region count."""
    spans = run.of(KERNEL)
    chosen = ~run.communicates()
    if where is not None and len(where.device.start):
        at = np.searchsorted(where.device.start, spans.start, side="right") - 1
        chosen &= (at >= 0) & (spans.start < where.device.end[np.maximum(at, 0)])
    total = np.bincount(spans.name[chosen], (spans.end - spans.start)[chosen], minlength=len(run.names))
    return {run.names[k]: float(total[k]) for k in np.flatnonzero(total).tolist()}
