"""What is measured of a VM, and how that follows from what it does to its neighbours and suffers from them.

A VM presses on execution ports, private caches, the last-level cache, memory bandwidth and input/output (p), and suffers when others do
(s), each in [0, 1]; see `contention`. Nobody can measure p and s. Counters can: issue slots and misses per thousand instructions show the
pressure, and the shares of slots that a top-down analysis finds lost to the core, to L2, to the last-level cache and to memory show
the sensitivity. The lines between both are straight (`LINES`, ours), and what is measured carries noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: metric: (unit, "p" or "s", resource, value at 0, value at 1).
LINES: Mapping[str, tuple[str, str, int, float, float]] = {
    "ports": ("share", "p", 0, 0.10, 0.80),
    "l2_mpki": ("1/1000", "p", 1, 1.0, 41.0),
    "llc_mpki": ("1/1000", "p", 2, 0.2, 20.2),
    "busy_gbps": ("GB/s", "p", 3, 0.1, 6.1),
    "net_mbps": ("MB/s", "p", 4, 0.5, 120.5),
    "core_bound": ("share", "s", 0, 0.02, 0.62),
    "l2_bound": ("share", "s", 1, 0.02, 0.52),
    "llc_bound": ("share", "s", 2, 0.02, 0.52),
    "dram_bound": ("share", "s", 3, 0.02, 0.62),
    "disk_mbps": ("MB/s", "s", 4, 0.2, 80.2),
}
#: Cycles per instruction alone: this much, plus the slots lost to caches and memory (ours).
CPI_ALONE, CPI_LOST = 0.5, 2.0
#: Noise of a 5-minute reading, and readings per hour.
NOISE, READINGS = 0.05, 12

#: The numbers that describe a VM, in order, with their units: what a technique sees, and what a table of metrics may have.
VM_FEATURES: tuple[tuple[str, str], ...] = (
    ("vcpu", ""), ("memory_gb", "GB"), ("cpu", "share"), ("cpu_mean", "share"), ("cpu_p95", "share"), ("steal", "share"),
    ("cpi", ""), ("ports", "share"), ("l2_mpki", "1/1000"), ("llc_mpki", "1/1000"), ("mem_gbps", "GB/s"), ("net_mbps", "MB/s"),
    ("disk_mbps", "MB/s"), ("core_bound", "share"), ("l2_bound", "share"), ("llc_bound", "share"), ("dram_bound", "share"),
    ("hour_sin", ""), ("hour_cos", ""), ("age_days", "days"),
)  # fmt: skip
VM = {name: i for i, (name, _) in enumerate(VM_FEATURES)}
#: The numbers that describe a host: what it is, the hour, and what its VMs do together.
HOST_FEATURES: tuple[tuple[str, str], ...] = (
    ("cores", ""), ("threads", ""), ("speed", ""), ("llc_mb", "MB"), ("host_memory_gb", "GB"), ("bandwidth_gbps", "GB/s"),
    ("host_hour_sin", ""), ("host_hour_cos", ""), ("vms", ""), ("vcpus", ""), ("used_gb", "GB"), ("busy", "threads"),
    ("busy_mean", "threads"), ("busy_p95", "threads"), ("load", "share"), ("host_steal", "share"), ("all_ports", "threads"),
    ("all_l2", "1/1000"), ("all_llc", "1/1000"), ("all_gbps", "GB/s"), ("all_net", "MB/s"), ("all_disk", "MB/s"),
    ("mean_core_bound", "share"), ("mean_dram_bound", "share"),
)  # fmt: skip


def measured(pressure: Floats, sensitivity: Floats) -> dict[str, Floats]:
    """The metrics of VMs without noise, from p and s [vms, 5]; `busy_gbps` is per busy vCPU."""
    latent = {"p": pressure, "s": sensitivity}
    return {name: low + (high - low) * latent[kind][:, i] for name, (_, kind, i, low, high) in LINES.items()}


def inferred(columns: Mapping[str, Floats], count: int) -> tuple[Floats, Floats]:
    """p and s [vms, 5] that the metrics of VMs show, 0 for what was not measured."""
    pressure, sensitivity = np.zeros((count, 5)), np.zeros((count, 5))
    for name, (_, kind, i, low, high) in LINES.items():
        if name in columns:
            target = pressure if kind == "p" else sensitivity
            target[:, i] = np.clip((np.asarray(columns[name], np.float64) - low) / (high - low), 0.0, 1.0)
    return pressure, sensitivity


def cpi_alone(columns: Mapping[str, Floats]) -> Floats:
    """Cycles per instruction of a VM that nobody disturbs."""
    return CPI_ALONE + CPI_LOST * (columns["l2_bound"] + columns["llc_bound"] + columns["dram_bound"])
