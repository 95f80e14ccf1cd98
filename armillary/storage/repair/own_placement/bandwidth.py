"""The free bandwidth of every node over time, which is piecewise constant, from a CSV file, from a cluster file, or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table

from ..plans.problem import Fabric

if TYPE_CHECKING:
    from armillary.cluster import Cluster

MB = 1e6
Rates = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Bandwidth:
    """What each node can send and receive in bytes/s.

    Row t of `up` and `down` holds from `times[t]` on, and the first row also before that. Racks are as in `Fabric`: unless given, no rack
    limits anything, and one switch adds up everything.
    """

    names: tuple[str, ...]
    times: np.ndarray
    up: np.ndarray
    down: np.ndarray
    rack: np.ndarray
    rack_up: np.ndarray
    rack_down: np.ndarray
    aggregate: np.ndarray
    core_aggregate: float = np.inf

    @classmethod
    def constant(
        cls, up: Rates, down: Rates, names: Sequence[str] | None = None, *, rack: Sequence[int] | np.ndarray | None = None,
        rack_up: Rates | float = np.inf, rack_down: Rates | float | None = None, aggregate: Rates | float = np.inf,
        core_aggregate: float | None = None,
    ) -> Bandwidth:  # fmt: skip
        """A bandwidth that never changes, from the bytes/s of each node."""
        fabric = Fabric.make(up, down, rack=rack, rack_up=rack_up, rack_down=rack_down, aggregate=aggregate, core_aggregate=core_aggregate)
        listed = tuple(str(i) for i in range(fabric.nodes)) if names is None else tuple(names)
        if len(listed) != fabric.nodes:
            raise InputError(f"found {len(listed)} names for {fabric.nodes} nodes; expected as many")
        return cls.over_time(listed, np.zeros(1), fabric.up[None, :], fabric.down[None, :], fabric)

    @classmethod
    def over_time(cls, names: tuple[str, ...], times: np.ndarray, up: np.ndarray, down: np.ndarray, fabric: Fabric) -> Bandwidth:
        """The bandwidth of the nodes at `times`, with the racks and switches of `fabric`."""
        racks = (fabric.rack, fabric.rack_up, fabric.rack_down, fabric.aggregate, fabric.core_aggregate)
        return cls(names, np.asarray(times, np.float64), np.asarray(up, np.float64), np.asarray(down, np.float64), *racks)

    @classmethod
    def read(cls, path: str | Path) -> Bandwidth:
        """Reads a CSV file with the columns time_s,node,up_MBps,down_MBps; a node keeps its last value until it gets a new one."""
        rates = [Column(name, least=0, unit="MB/s") for name in ("up_MBps", "down_MBps")]
        columns = [Column("time_s", least=0, unit="seconds"), Column("node", "str"), *rates]
        table = read_table(path, columns, unique=("time_s", "node"))
        node, names = table.numbered("node")
        times, moment = np.unique(table["time_s"], return_inverse=True)
        both = np.full((2, len(times), len(names)), np.nan)
        both[:, moment, node] = MB * table["up_MBps"], MB * table["down_MBps"]
        if np.isnan(both[0, 0]).any():
            late = names[int(np.flatnonzero(np.isnan(both[0, 0]))[0])]
            raise InputError(f'found no row of node "{late}" at the first time, {times[0]:g} s; expected every node there', where=str(path))
        for t in range(1, len(times)):
            both[:, t] = np.where(np.isnan(both[:, t]), both[:, t - 1], both[:, t])
        up, down = both
        return cls.over_time(tuple(names), times, up, down, Fabric.make(up[0], down[0]))

    @classmethod
    def of_cluster(cls, cluster: Cluster, network: str | None = None) -> Bandwidth:
        """The nodes of a cluster file at the rates of their NICs; racks are the switches of the nodes, with their aggregation."""
        from armillary.engine import Network, Simulation

        with Simulation() as sim:
            net = Network(sim, cluster)
            name = cluster.network_name(network)
            graph = cluster.graph(name)
            count = cluster.nodes
            up = np.array([net.uplink(i, on=name).capacity for i in range(count)])
            down = np.array([net.downlink(i, on=name).capacity for i in range(count)])
        if not ((up > 0) & (down > 0)).all():
            raise InputError("found nodes without a rate of their NIC; expected one", where=f"network.{name}")
        to_node = graph.link_kind == 0
        other_end = np.full(graph.vertices, -1, np.int64)
        other_end[graph.u[to_node]], other_end[graph.v[to_node]] = graph.v[to_node], graph.u[to_node]
        own = graph.endpoints[[cluster.endpoint(i, 0, name) for i in range(count)]]
        switches, rack = np.unique(other_end[own], return_inverse=True)
        rates = graph.rate * graph.stripes
        # The rates of the links from a rack's switch to other switches.
        beyond = [float(np.nansum(rates[~to_node & ((graph.u == switch) | (graph.v == switch))])) for switch in switches]
        switch = cluster.networks[name].switch
        aggregate = float(switch.aggregate) if switch and switch.aggregate else 0.0
        rack_up = np.array(beyond) if len(switches) > 1 else np.inf
        return cls.constant(up, down, [f"n{i}" for i in range(count)], rack=rack, rack_up=rack_up, aggregate=aggregate)

    def at(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """(up, down) of all nodes at this time."""
        row = max(int(np.searchsorted(self.times, time, side="right")) - 1, 0)
        return self.up[row], self.down[row]

    def fabric(self, time: float = 0.0) -> Fabric:
        """The fabric with the bandwidth that is free at this time."""
        up, down = self.at(time)
        return Fabric(up, down, self.rack, self.rack_up, self.rack_down, self.aggregate, self.core_aggregate)
