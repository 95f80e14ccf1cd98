"""The machine that trains: nodes of GPUs, each with a link to its host and a share of the network, and a shared storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.errors import InputError
from armillary.llm import Chip, Fabric

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Share of the link's rate that pinned copies reach, where the cluster states no rate: 24 of 32 GB/s, as the offload arena's workstation.
PINNED = 0.75
#: Rate of copies into memory that is not pinned, as a share of pinned ones (the offload arena's workstation).
PAGEABLE = 0.45
#: Bytes per second that a node writes to and reads from the shared storage (ours: within 2 to 5 GB/s).
STORAGE = 3.5e9
#: Seconds that every chunk costs besides its bytes: two launches, an event and a message (ours).
ALPHA_S = 50e-6
#: Seconds until a failure is noticed, and until the job has a spare node and new groups (ours).
DETECT_S, RESTART_S = 15.0, 120.0


@dataclass(frozen=True)
class Machine:
    """Rates in bytes per second and GPU: `pcie` of pinned copies, `nic` of large messages; `storage` per node."""

    name: str
    chip: Chip
    fabric: Fabric
    nodes: int
    pcie: float
    nic: float
    storage: float = STORAGE
    pageable: float = PAGEABLE
    alpha_s: float = ALPHA_S
    detect_s: float = DETECT_S
    restart_s: float = RESTART_S

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.fabric.node

    def rate(self, replicas: int) -> float:
        """Bytes of checkpoint per second that a GPU moves: its link carries a copy per replica, the network all but the local one.

        β = min(PCIe / m, NIC / (m − 1)): its own copy and the m − 1 copies of neighbours go down to the host.
        """
        if not 2 <= replicas <= self.nodes:
            raise InputError(f"replicas: found {replicas} for {self.nodes} nodes; expected 2 to {self.nodes}, one per node")
        return min(self.pcie / replicas, self.nic / (replicas - 1))

    @staticmethod
    def of(cluster: Cluster | str, gpus: int, *, node_gbit: float = 0.0, storage_gb: float = 0.0) -> Machine:
        """As many nodes of a cluster (a description, a preset or a file) as `gpus` need; `node_gbit` is another network, in Gb/s."""
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        chip, fabric = Fabric.of_cluster(found)
        if gpus < 1 or gpus % fabric.node or gpus > 1 << 20:
            raise InputError(f"{gpus} GPUs on nodes of {fabric.node}; expected a multiple of {fabric.node}", where="gpus")
        if node_gbit:
            fabric = Fabric.of(chip, fabric.node, node_gbit * 1e9 / 8 / fabric.node)
        node = next(group.node for group in found.groups if any(d.kind in ("gpu", "npu") for d in group.node.devices))
        host = next((m for m in node.memories if m.kind == "dram"), None)
        link = next((x for x in node.links if set(x.ends) == {"socket", "device"} and isinstance(x.rate, float)), None)
        pinned = (host.pinned if host is not None else None) or (PINNED * float(link.rate or 0.0) if link is not None else None)
        if not pinned:
            raise InputError(f"{found.name}: expected the rate between the host and its GPUs", where="cluster")
        made = Machine(found.name, chip, fabric, gpus // fabric.node, float(pinned), fabric.far_rate)
        return replace(made, storage=storage_gb * 1e9) if storage_gb else made
