"""The constants of a node that estimates of an exchange rest on, all from the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError

CLUSTER = "infiniband-hdr100"
#: Bytes up to which messages go with their data, between nodes and inside one, as virtual ranks have them.
EAGER_FAR, EAGER_NEAR = 16384, 8192


@dataclass(frozen=True)
class Machine:
    """Bytes per second of one core's copies, of a node's memory and of its NIC; seconds of latency and of a call."""

    core: float
    memory: float
    nic: float
    latency: float
    overhead: float

    def scaled(self, nic: float) -> Machine:
        """Return what a planner believes that takes the NIC for `nic` times as fast."""
        return Machine(self.core, self.memory, self.nic * nic, self.latency, self.overhead)


def machine_of(cluster: Any) -> Machine:
    """Return the constants of a cluster, or of a preset; one without NIC or memory bandwidth is refused."""
    from armillary import cluster as clusters

    found = clusters.preset(cluster) if isinstance(cluster, str) else cluster
    node = found.node(0)
    if not node.nics:
        raise InputError("found a node without NIC; expected one, because halos travel between nodes", where=found.name)
    if not node.memories or not node.memories[0].bandwidth:
        raise InputError("found a node without a bandwidth of its memory; expected one, because copies need it", where=found.name)
    memory: Any = node.memories[0]
    nic = node.nics[0].type
    latency = found.networks[found.network_name()].latency
    path: Any = getattr(latency, "path", None)
    return Machine(
        float(memory.copy_bandwidth_per_core or 10e9), float(memory.bandwidth), float(nic.rate),
        float(path or 1e-6), float(nic.send_overhead or 0.25e-6),
    )  # fmt: skip
