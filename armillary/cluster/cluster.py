"""A cluster: groups of nodes, the networks between them and the site, as frozen data that answers questions about the machine."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from armillary.cluster import fields as f
from armillary.cluster import schema as s
from armillary.cluster.content import digest_of, tables
from armillary.cluster.networks import AnyNetwork
from armillary.cluster.node import PlacedNode
from armillary.errors import InputError, unknown
from armillary.wording import counted

if TYPE_CHECKING:
    import networkx

    from armillary.cluster.energy import Cost, When
    from armillary.cluster.graph import Graph
    from armillary.cluster.paths import Path as Route
    from armillary.cluster.paths import Place


class Cluster(f.Table):
    """The description of a machine. It is hashable, equal to another when everything in it is equal, and its `digest` is stable across
    processes.
    """

    armillary: Literal[1]
    name: f.Name
    description: f.Text | None = None
    sites: tuple[s.Site, ...] = Field(default=(), alias="site", max_length=1000)
    groups: tuple[s.NodeGroup, ...] = Field(alias="group", min_length=1, max_length=10_000)
    networks: dict[f.Name, AnyNetwork] = Field(default={}, alias="network", max_length=1000)
    facts: tuple[s.Fact, ...] = Field(default=(), max_length=100_000)

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "cluster", base: str | Path | None = None) -> Cluster:
        """The cluster that plain tables in the schema of a cluster file describe; an `InputError` lists everything that is wrong."""
        from armillary.cluster.reader import from_dict

        return from_dict(data, where, base)

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the content, which changes when any number changes."""
        return digest_of(self)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Graphs and paths that were built from this cluster, so that each is built once."""
        return {}

    def __getstate__(self) -> dict[Any, Any]:
        # Graphs and paths are not pickled; they are built again in the other process.
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k in type(self).model_fields}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cluster) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {counted(self.nodes, 'node')})"

    __str__ = __repr__

    # Counts

    @property
    def site(self) -> s.Site:
        """The first site; an empty one when the file names none."""
        return self.sites[0] if self.sites else s.Site()

    @property
    def nodes(self) -> int:
        """The number of nodes in all groups."""
        return sum(g.count for g in self.groups)

    @property
    def cores(self) -> int:
        """The number of CPU cores in all nodes, as far as the file states them."""
        return sum(g.count * x.count * int(x.cores or 0) for g in self.groups for x in g.node.sockets)

    @property
    def threads(self) -> int:
        """The number of hardware threads in all nodes, as far as the file states them."""
        return sum(g.count * x.count * int(x.cores or 0) * x.threads_per_core for g in self.groups for x in g.node.sockets)

    def devices(self, kind: str | None = None) -> int:
        """The number of devices of one kind (`gpu`, `npu`…), or of all kinds."""
        if kind is not None and kind not in s.DEVICE_KINDS:
            raise unknown("device kind", kind, s.DEVICE_KINDS)
        return sum(g.count * d.count for g in self.groups for d in g.node.devices if kind in (None, d.kind))

    def peak(self, precision: str = "fp64", of: str | None = None) -> float:
        """Dense flop/s (or integer operations/s) of the whole cluster at one precision.

        `of` is a device kind, or `cpu`; without it the devices count if any of them states that precision, and otherwise the CPUs.
        """
        name = precision.replace("-", "_")
        if name not in s.Peak.model_fields:
            raise unknown("precision", precision, s.Peak.model_fields)
        devices = sum(g.count * d.count * (d.peak[name] or 0.0) for g in self.groups for d in g.node.devices if of in (None, d.kind))
        if of not in (None, "cpu", *s.DEVICE_KINDS):
            raise unknown("kind", of or "", ("cpu", *s.DEVICE_KINDS))
        if of == "cpu" or (of is None and not devices):
            return float(sum(g.count * x.count * (x.peak(name) or 0.0) for g in self.groups for x in g.node.sockets))
        return float(devices)

    def memory(self, kind: str | None = None) -> float:
        """Bytes of one kind of memory or storage (`hbm`, `dram`, `nvme`…), or of all memory (hbm, dram, cxl, pmem).

        A tier on the network counts once, and a device that uses the node's memory does not count again.
        """
        if kind is not None and kind not in s.MEMORY_KINDS:
            raise unknown("memory kind", kind, s.MEMORY_KINDS)
        wanted = (kind,) if kind else ("hbm", "dram", "cxl", "pmem")
        total, shared = 0.0, {}
        for g in self.groups:
            for m in g.node.memories:
                if m.kind in wanted and m.attached == "network":
                    shared[m.called] = m.count * float(m.size or 0)
                elif m.kind in wanted:
                    total += g.count * m.count * float(m.size or 0)
            for d in g.node.devices:
                if d.memory and d.memory.kind in wanted and not d.memory.shared:
                    total += g.count * d.count * d.memory.count * float(d.memory.size or 0)
        return total + sum(shared.values())

    # Parts

    @cached_property
    def _first_nodes(self) -> list[int]:
        starts = [0]
        for g in self.groups:
            starts.append(starts[-1] + g.count)
        return starts

    def group(self, name: str) -> s.NodeGroup:
        """The group of that name."""
        for g in self.groups:
            if g.name == name:
                return g
        raise unknown("group", name, (g.name for g in self.groups), where=self.name)

    def node(self, index: int) -> PlacedNode:
        """Node `index`, counted group by group."""
        if not 0 <= index < self.nodes:
            raise InputError(f"node {index} does not exist; {self.name} has nodes 0 to {self.nodes - 1}")
        at = bisect.bisect_right(self._first_nodes, index) - 1
        return PlacedNode(index, index - self._first_nodes[at], self.groups[at])

    def network(self, name: str | None = None) -> Any:
        """The network of that name, or the first one."""
        return self.networks[self.network_name(name)]

    def network_name(self, name: str | None = None) -> str:
        """`name` if there is such a network; without a name, that of the first network."""
        if name is None:
            if not self.networks:
                raise InputError(f"{self.name} has no network")
            return next(iter(self.networks))
        if name not in self.networks:
            raise unknown("network", name, self.networks, where=self.name)
        return name

    def endpoints(self, network: str | None = None) -> int:
        """The number of endpoints (NICs) on a network; they are numbered group by group, node by node, NIC by NIC."""
        name = self.network_name(network)
        return sum(g.count * sum(x.count for x in g.node.nics if x.network == name) for g in self.groups)

    def endpoint(self, node: int, nic: int = 0, network: str | None = None) -> int:
        """The number of the `nic`-th endpoint that a node has on a network."""
        from armillary.cluster.paths import endpoint_of

        return endpoint_of(self, node, nic, self.network_name(network))

    # Networks and paths

    def graph(self, network: str | None = None) -> Graph:
        """The network as arrays (vertices, edges, CSR), which are built once."""
        from armillary.cluster.topology import graph_of

        return graph_of(self, self.network_name(network))

    def path(self, a: Place, b: Place, network: str | None = None) -> Route:
        """The minimal path from one place to another, with ties broken by index: its links, seconds and bytes/s.

        A place is an endpoint of the network (a number), or text such as `"n17"` (a node), `"n17/device:3"`, `"n17/socket:0"` or
        `"n17/nic:2"`.
        """
        from armillary.cluster.paths import path

        return path(self, a, b, network)

    def alpha_beta(self, a: Place, b: Place, network: str | None = None) -> tuple[float, float]:
        """(seconds, seconds per byte) of the path, for cost models; an unknown latency or rate is an error."""
        from armillary.cluster.paths import alpha_beta

        return alpha_beta(self, a, b, network)

    def bisection(self, network: str | None = None) -> float:
        """Bytes/s in one direction across the worst halving of the endpoints; `bisection_is_bound` says whether it is only a bound."""
        from armillary.cluster.cuts import bisection

        return bisection(self, self.network_name(network))

    def bisection_is_bound(self, network: str | None = None) -> bool:
        """True when `bisection` is only a lower bound (networks from files and tiers)."""
        from armillary.cluster.cuts import is_bound

        return is_bound(self.network(network))

    def diameter(self, network: str | None = None) -> int:
        """The number of links on the shortest path between the two endpoints that are farthest apart."""
        from armillary.cluster.cuts import diameter

        return diameter(self, self.network_name(network))

    def taper(self, network: str | None = None) -> float:
        """The bandwidth out of a dragonfly group or of a subtree of a fat tree, divided by what its endpoints can inject. For other
        networks it is the bisection, divided by what half of the endpoints can inject.
        """
        from armillary.cluster.cuts import taper

        return taper(self, self.network_name(network))

    def group_bandwidth(self, network: str | None = None) -> float:
        """Bytes/s in one direction out of one dragonfly group."""
        from armillary.cluster.cuts import group_bandwidth

        return group_bandwidth(self, self.network_name(network))

    def global_bandwidth(self, network: str | None = None) -> float:
        """Bytes/s in one direction of all links between dragonfly groups."""
        from armillary.cluster.cuts import global_bandwidth

        return global_bandwidth(self, self.network_name(network))

    # Power and carbon

    def power(self, utilisation: float | Mapping[str, float] = 1.0, profile: str | None = None, pue: bool = True) -> float:
        """Watts at a utilisation from 0 to 1, for all groups or by group name, multiplied by the site's PUE unless `pue` is false.

        A node's P(u) = idle + u^exponent · (peak − idle). A figure that is needed but unknown is an error; it is never guessed.
        """
        from armillary.cluster.energy import power

        return power(self, utilisation, profile, pue)

    def energy(self, seconds: float, utilisation: float | Mapping[str, float] = 1.0, profile: str | None = None, pue: bool = True) -> float:
        """Joules over `seconds` at a utilisation: `power` times time."""
        return self.power(utilisation, profile, pue) * seconds

    def carbon(self, joules: float, start: When | None = None, seconds: float = 0.0, site: str | None = None, pue: bool = True) -> float:
        """Grams of CO₂e for joules that the machine draws evenly over `seconds` from `start`.

        They are multiplied by PUE, unless `pue` is false because the joules already include it. A trace is integrated exactly. The carbon
        of making the machine is separate (`embodied`).
        """
        from armillary.cluster.energy import carbon

        return carbon(self, joules, start, seconds, site, pue)

    def embodied(self, seconds: float, nodes: float | None = None) -> float:
        """Grams of CO₂e of making `nodes` nodes (by default all), for the share that `seconds` are of the machine's lifetime."""
        from armillary.cluster.energy import embodied

        return embodied(self, seconds, nodes)

    def cost_per_hour(self, utilisation: float | Mapping[str, float] = 1.0, start: When | None = None) -> Cost:
        """Energy, carbon, embodied carbon and price of one hour; figures that the file does not determine are None."""
        from armillary.cluster.energy import cost_per_hour

        return cost_per_hour(self, utilisation, start)

    # Unknown figures

    def missing(self, what: str) -> list[str]:
        """The key paths that are unknown for `power`, or for a requirement such as `device.memory.bandwidth`."""
        from armillary.cluster.requirements import missing

        return missing(self, what)

    def require(self, what: Iterable[str]) -> None:
        """Raises an `InputError` that lists every figure of `what` that this cluster does not state."""
        from armillary.cluster.requirements import require

        require(self, what)

    # Changed copies

    def slice(self, nodes: Iterable[int]) -> Cluster:
        """The cluster of these nodes; their endpoints take the first ports of the same networks."""
        from armillary.cluster.change import slice_nodes

        return slice_nodes(self, nodes)

    def scale(self, nodes: int, group: str | None = None) -> Cluster:
        """The same machine with `nodes` nodes (of one group, or of all in proportion); each network grows by the rule of its topology."""
        from armillary.cluster.change import scale

        return scale(self, nodes, group)

    def replace(self, key: str, value: object) -> Cluster:
        """The same machine with one key changed, such as `"group.gpu.node.device.memory.size", "141 GB"`, and checked again."""
        from armillary.cluster.change import replace

        return replace(self, key, value)

    # Export

    def to_dict(self) -> dict[str, Any]:
        """The tables of the cluster file, as tomllib would return them."""
        found = tables(self, "text")
        if len(self.sites) == 1:
            found["site"] = found.get("site", [{}])[0]
        return found

    def to_toml(self) -> str:
        """A cluster file that loads as an equal cluster."""
        from armillary.cluster.toml import write_toml

        return write_toml(self.to_dict())

    def to_json(self) -> str:
        """The same tables as JSON, with numbers in base units."""
        return json.dumps(tables(self, "number"), indent=1, ensure_ascii=False)

    def to_simgrid(self, path: str | Path) -> None:
        """Writes a SimGrid platform (XML version 4.1) of the nodes and the first network."""
        from armillary.cluster.simgrid import write_simgrid

        write_simgrid(self, Path(path))

    def to_networkx(self, network: str | None = None) -> networkx.MultiGraph:
        """The network as a networkx multigraph: vertices with `kind` and `group`, edges with `rate` and `latency`."""
        return self.graph(network).to_networkx()

    def summary(self) -> str:
        """The machine as a plain text table."""
        from armillary.cluster.summary import summary

        return summary(self)
