"""The parts of a cluster that a collective uses: NICs, NVLink, and each switch's slots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError

from .allreduce_time import Shape

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Seconds per step of a ring over Ethernet and over NVLink including software (our figures, as in the worked example of the docs).
NIC_S, NVLINK_S, RTT_S = 10e-6, 2e-6, 20e-6
MOST_SERVERS, MOST_SLOTS = 1024, 1 << 20


@dataclass(frozen=True)
class Wires:
    """Servers of `gpus` devices, each with a NIC of `nic` bytes/s on every switch in `reach[server]`.

    A switch holds `slots` packets of `payload` bytes at once; a slot is free again after `rtt_s`, so w slots aggregate w·payload/RTT
    bytes/s. Its chip adds up at most `asic` bytes/s of input: a job of s servers that advances at r takes s·r of it.
    """

    servers: int
    gpus: int
    device: str
    nic: float
    nvlink: float
    switches: int
    slots: int
    payload: int
    asic: float
    reach: tuple[tuple[int, ...], ...]
    rtt_s: float = RTT_S
    nic_s: float = NIC_S
    nvlink_s: float = NVLINK_S

    def __post_init__(self) -> None:
        if not 1 <= self.servers <= MOST_SERVERS or self.gpus < 1 or self.switches < 1:
            raise InputError(f"servers, gpus, switches: found {self.servers}, {self.gpus}, {self.switches}; expected at least 1 of each")
        if not 0 <= self.slots <= MOST_SLOTS or self.payload < 1:
            raise InputError(f"aggregation: found {self.slots} slots of {self.payload} bytes; expected 0 to {MOST_SLOTS} of at least 1")
        if not (0 < self.nic < math.inf and 0 < self.nvlink < math.inf and self.asic >= 0 and self.rtt_s > 0):
            raise InputError("nic, nvlink, rtt_s: expected numbers above 0; asic: 0 or more")

    @staticmethod
    def of(cluster: Cluster | str, *, aggregates: bool = True) -> Wires:
        """Returns the servers with GPUs of a cluster, its first network, and the slots of its switches.

        `aggregates=False` accepts a network whose switches cannot aggregate; then there are no slots and only rings work.
        """
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        where = f"cluster {found.name}"
        groups = [g for g in found.groups if any(d.kind == "gpu" for d in g.node.devices)]
        if len(groups) != 1 or sum(g.count for g in found.groups) != groups[0].count:
            raise InputError(f"found {len(groups)} groups of servers with GPUs; expected all servers to be of one kind", where=where)
        node, count = groups[0].node, int(groups[0].count)
        device = next(d for d in node.devices if d.kind == "gpu")
        near = [float(x.rate) for x in node.links if x.ends == ("device", "device") and isinstance(x.rate, float)]
        if not near:
            raise InputError("a server says nothing of the link between its devices; expected its rate", where=where)
        name = found.network_name(None)
        network = found.networks[name]
        ports = [n for n in node.nics if n.network == name]
        if not ports or network.rate is None:
            raise InputError("expected NICs on the network, and its rate", where=f"{where}: network.{name}")
        said = network.switch.aggregation if network.switch else None
        if aggregates and (said is None or int(said.slots) < 1):
            found_slots = "none" if said is None else str(int(said.slots))
            raise InputError(f"found {found_slots}; expected switches with slots", where=f"{where}: network.{name}.switch.aggregation")
        per = sum(int(n.count) for n in ports)
        own = min((n.bandwidth for n in ports if n.bandwidth is not None), default=math.inf)
        leaf = found.graph(name).attachment[0]
        order = {int(v): k for k, v in enumerate(sorted({int(v) for v in leaf}))}
        reach = tuple(tuple(sorted({order[int(leaf[found.endpoint(i, k, name)])] for k in range(per)})) for i in range(count))
        # A file may give the chip's rate under either of two names.
        said_rates = [float(network.switch.aggregate)] if network.switch and network.switch.aggregate else []
        if said is not None and said.gbps is not None:
            said_rates.append(float(said.gbps) * 1e9 / 8)
        return Wires(
            servers=count, gpus=int(device.count), device=str(device.model or device.kind), nic=min(float(network.rate), float(own)),
            nvlink=max(near), switches=len(order), slots=int(said.slots) if said else 0, payload=int(said.payload_bytes) if said else 1024,
            asic=min(said_rates) if said_rates else math.inf, reach=reach, rtt_s=float(said.rtt) if said and said.rtt else RTT_S,
        )  # fmt: skip

    @property
    def window(self) -> int:
        """The number of slots with which one job fills its NIC, B·RTT/payload."""
        return math.ceil(self.nic * self.rtt_s / self.payload)

    def rate_of(self, slots: float) -> float:
        """Returns the bytes/s that this number of slots aggregates."""
        return slots * self.payload / self.rtt_s

    def share(self, servers: int, jobs: int = 1) -> float:
        """Returns S, the rate that one of `jobs` equal jobs of `servers` servers gets from a switch's slots and chip."""
        if jobs < 1:
            raise InputError(f"jobs: found {jobs}; expected at least 1")
        return min(self.rate_of(self.slots / jobs), self.asic / (servers * jobs))

    def shape(self, servers: int, gpus: int | None = None) -> Shape:
        """Returns the shape of a collective over this number of servers, on `gpus` devices of each."""
        return Shape(servers, self.gpus if gpus is None else gpus, self.nic, self.nvlink, self.nic_s, self.nvlink_s, self.rtt_s)

    def common(self, servers: Sequence[int]) -> tuple[int, ...]:
        """Returns the switches that all these servers reach; raises InputError if there is none."""
        shared = set(range(self.switches)).intersection(*(self.reach[i] for i in servers))
        if not shared:
            raise InputError(f"servers {', '.join(map(str, servers))} have no switch in common; expected a group that one switch joins")
        return tuple(sorted(shared))
