"""The machine that a model does not fit: one GPU, its host, and an NVMe drive, with the rates of the links between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

GIB = 1 << 30
#: Seconds that the host spends on launching one copy, besides the latency of the link (ours).
LAUNCH_S = 10e-6
#: Seconds before the first byte of a read or a write of the drive (ours: a usual NVMe drive).
NVME_S = 100e-6
#: Parameters per second that Adam updates on all cores of the host together (the arena's workstation; about 42 GB/s of memory traffic).
ADAM_PARAMS_PER_S = 1.5e9
#: Seconds of `cudaMalloc`, and of pinning one MiB of host memory.
MALLOC_S, PIN_S_PER_MIB = 0.3e-3, 0.25e-3
#: Bytes of the GPU that kernels and libraries need.
WORKSPACE = 1.0 * GIB
#: Bytes per parameter of Adam's state in fp32: master weight and two moments.
STATE_BYTES = 12
#: Buffers through which optimizer states stream (DeepSpeed's `buffer_count`).
STATE_BUFFERS = 4
#: On-demand list prices in US dollars per hour and GPU.
PRICE_PER_HOUR = {"v100-32": 3.06, "a100-40": 4.10, "h100-80": 12.29}


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes, rates in bytes per second, latencies in seconds; a machine without a drive has `nvme_read` 0."""

    name: str
    device: str
    gpu_bytes: float
    host_bytes: float
    pcie: float
    pcie_s: float
    nvme_read: float = 0.0
    nvme_write: float = 0.0
    nvme_s: float = NVME_S
    adam: float = ADAM_PARAMS_PER_S

    def __post_init__(self) -> None:
        for name in ("gpu_bytes", "host_bytes", "pcie", "adam"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{self.name}: {name}: found {getattr(self, name)}; expected a number above 0")

    @property
    def nvme(self) -> bool:
        """Whether there is a drive."""
        return self.nvme_read > 0 and self.nvme_write > 0

    @staticmethod
    def of(cluster: Cluster | str) -> Machine:
        """The first node of a cluster (a description, a preset or a file) that has a GPU, with that one GPU.

        Copies run at the host memory's pinned rate, or at the link's rate where the file states none.
        """
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        for group in found.groups:
            node = group.node
            gpu = next((device for device in node.devices if device.kind in ("gpu", "npu")), None)
            if gpu is None:
                continue
            host = next((m for m in node.memories if m.kind == "dram"), None)
            drive = next((m for m in node.memories if m.kind in ("nvme", "ssd")), None)
            link = next((x for x in node.links if set(x.ends) == {"socket", "device"}), None)
            rate = (host.pinned if host is not None else None) or (link.rate if link is not None else None)
            if gpu.memory is None or gpu.memory.size is None or host is None or host.size is None or rate is None:
                raise InputError(f"{found.name}: expected the sizes of the GPU's and the host's memory, and the rate between them")
            latency = float(link.latency) if link is not None and link.latency is not None else 0.0
            return Machine(
                found.name, gpu.model or gpu.kind, float(gpu.memory.size), float(host.size), float(rate), latency + LAUNCH_S,
                float(drive.bandwidth or 0.0) if drive is not None else 0.0,
                float(drive.write_bandwidth or drive.bandwidth or 0.0) if drive is not None else 0.0,
            )  # fmt: skip
        raise InputError(f"{found.name} has no GPU", where="cluster")

    def with_sizes(self, gpu_bytes: float = 0.0, host_bytes: float = 0.0) -> Machine:
        """This machine with other sizes of memory; 0 keeps a size."""
        return replace(self, gpu_bytes=gpu_bytes or self.gpu_bytes, host_bytes=host_bytes or self.host_bytes)

    @property
    def price_per_hour(self) -> float:
        """US dollars per hour, or 0 where no list price is known."""
        return PRICE_PER_HOUR.get(self.device, 0.0)
