"""The links of a cluster as pools, and transfers over them as flows.

A flow first waits for the latency of its path, without using it, and then moves its bytes at a rate that it shares max-min fairly with the
other activities on the same links. Inside a node it uses the memory, or the links between its parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from armillary.cluster import Cluster, Graph
from armillary.engine.resources import whole
from armillary.engine.routing import ECMP, FIRST, SPREAD, Router
from armillary.engine.sharing import Activity, Pool, checked_uses, positive
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.engine.simulation import Simulation

#: A node by number, or text such as "n17", "n17/device:3", "n17/socket:0" or "n17/nic:2".
Place: TypeAlias = int | str
ROUTING = ("static", "ecmp")
_PLACE = re.compile(r"n([0-9]{1,9})(?:/((?:device|socket|nic):[0-9]{1,9}))?")
#: The number of routes that are cached.
_MOST_ROUTES = 200_000


@dataclass(frozen=True)
class NetworkModel:
    """The corrections of published flow-level simulators, which are off by default so that times can be checked by hand.

    Latencies and bandwidths are multiplied by their factors; with `crosstraffic` c, a flow also uses the way back, with c bytes per byte of
    its own (acknowledgements).
    """

    latency_factor: float = 1.0
    bandwidth_factor: float = 1.0
    crosstraffic: float = 0.0

    def __post_init__(self) -> None:
        positive(self.latency_factor, "latency_factor", zero=True)
        positive(self.bandwidth_factor, "bandwidth_factor")
        positive(self.crosstraffic, "crosstraffic", zero=True)


@dataclass(frozen=True)
class Route:
    """A route: the numbers of its pools and the usage of each, its latency in seconds, and the most bytes/s of one flow."""

    pools: tuple[int, ...]
    uses: tuple[float, ...]
    latency: float
    cap: float = math.inf
    #: The directed links of the network on the route, in order.
    links: tuple[int, ...] = ()


class Flow(Activity):
    """A transfer, as an event that happens when the last byte has arrived; `rate`, `remaining` and `cancel()` are those of any activity."""

    __slots__ = ("_lane", "_network", "destination", "nbytes", "source", "started")

    _network: Network
    _lane: int
    source: Place
    destination: Place
    nbytes: float
    #: When the flow was requested.
    started: float

    def _done(self) -> None:
        self._network._arrived(self)
        self.succeed(self)

    def _failed(self, error: Exception) -> None:
        self._network._arrived(self)
        self.fail(error)

    def cancel(self) -> None:
        """Stops the flow, which then never happens and frees its links; it has no effect once the flow has happened."""
        if self.callbacks is not None:
            super().cancel()
            self._network._arrived(self)

    def describe(self) -> str:
        """A description for messages."""
        return f"flow from {self.source} to {self.destination} ({self.remaining:g} of {self.nbytes:g} bytes left, rate {self.rate:g})"


class _Fabric:
    """One network of the cluster: its graph, the pools of its directed links, and its routes."""

    def __init__(self, network: Network, name: str) -> None:
        cluster = network.cluster
        self.name = name
        self.cluster = cluster
        self._endpoints: dict[tuple[int, int], int] = {}
        self.graph: Graph = cluster.graph(name)
        described = cluster.networks[name]
        choice = ECMP if network.routing == "ecmp" else SPREAD if described.topology == "fat-tree" else FIRST
        self.router = Router(self.graph, choice, network.seed)
        rates = np.repeat(self.graph.rate, 2) * self.graph.stripes
        self._with_directions(cluster, rates)
        if (rates <= 0).any():
            edge = int(np.flatnonzero(rates <= 0)[0]) >> 1
            raise InputError(f"edge {edge} has a rate of {self.graph.rate[edge]!r}; expected more than 0", where=f"network.{name}")
        #: NaN where the file does not state it; such links cannot be used.
        self.rates = rates * network.model.bandwidth_factor
        self.first = network.sim.sharing._new_pools(np.where(np.isnan(rates), 0.0, self.rates))
        through = described.switch.capacity if described.switch else None
        self.switches = -1
        if through is not None:
            self.switches = network.sim.sharing._new_pools(np.full(self.graph.vertices, float(through)))

    def _with_directions(self, cluster: Cluster, rates: np.ndarray) -> None:
        """Applies the rates of NICs whose two directions differ."""
        _, up = self.graph.attachment
        at = 0
        for group in cluster.groups:
            own = [nic for nic in group.node.nics if nic.network == self.name for _ in range(nic.count)]
            for k, nic in enumerate(own):
                if nic.up is not None and nic.down is not None and nic.up != nic.down:
                    links = up[at + k : at + group.count * len(own) : len(own)]
                    links = links[links >= 0]
                    wire = float(cluster.networks[self.name].rate or math.inf)
                    rates[links], rates[links ^ 1] = min(float(nic.up), wire), min(float(nic.down), wire)
            at += group.count * len(own)

    def endpoint(self, node: int, nic: int) -> int:
        """The endpoint number of a node's NIC on this network, which is cached because large networks look it up often."""
        found = self._endpoints.get((node, nic))
        if found is None:
            found = self._endpoints[node, nic] = self.cluster.endpoint(node, nic, self.name)
        return found

    def ends(self, link: int) -> tuple[int, int]:
        u, v = int(self.graph.u[link >> 1]), int(self.graph.v[link >> 1])
        return (v, u) if link & 1 else (u, v)


class Network:
    """Flows over the links of a cluster.

    `routing="static"` takes the shortest route, with ties broken by edge number, and D-mod-k on fat trees. With `"ecmp"`, a hash of
    (source, destination, flow number, `seed`) picks among the shortest routes. A caller may give a flow its own path of pools.
    """

    def __init__(
        self, sim: Simulation, cluster: Cluster, *, model: NetworkModel | None = None, routing: str = "static", seed: int = 0
    ) -> None:
        if routing not in ROUTING:
            raise unknown("routing", str(routing), ROUTING)
        self.sim = sim
        self.cluster = cluster
        self.model = model or NetworkModel()
        self.routing = routing
        self.seed = seed
        #: The number of flows requested so far.
        self.flows = 0
        self._fabrics: dict[str, _Fabric] = {}
        self._routes: dict[Any, Route] = {}
        self._pools: dict[Any, Pool] = {}
        self._places: dict[Place, tuple[int, str | None]] = {}
        self._busy_lanes: dict[int, set[int]] = {}

    # Flows

    def flow(
        self,
        source: Place,
        destination: Place,
        nbytes: float,
        *,
        path: Iterable[Pool] | None = None,
        weight: float = 1.0,
        rate: float | None = None,
        on: str | None = None,
        priority: int = 0,
        latency: float | None = None,
        also: Iterable[Pool] = (),
        count: int = 1,
    ) -> Flow:
        """Starts a transfer of `nbytes`; 0 bytes take only the latency.

        `path` lists pools to use instead of the route, whose `latency` is then 0 unless given. `rate` caps the flow in bytes/s, `on` names
        the network if the cluster has several, and `also` lists further pools to use (such as a disk at one end). With a `count` the flow
        stands for that many equal ones, of `nbytes`, `weight` and `rate` each, which begin and end together.
        """
        self.flows += count
        if path is not None:
            self._place(source), self._place(destination)
            route = Route(*checked_uses(self.sim, path), 0.0)
        elif self.routing == "ecmp":
            route = self._find(source, destination, on, self.flows)
        else:
            route = self.route(source, destination, on)
        pools, uses = route.pools, route.uses
        if also:
            more = _joined([route, Route(*checked_uses(self.sim, also), 0.0)])
            pools, uses = more.pools, more.uses
        cap = route.cap if rate is None else min(route.cap, positive(rate, "rate", infinite=True))
        delay = route.latency if latency is None else positive(latency, "latency", zero=True)
        flow = Flow.__new__(Flow)
        flow._network = self
        flow.source, flow.destination = source, destination
        flow.started = self.sim.now
        flow._lane = -1
        flow.nbytes = nbytes = positive(nbytes, "nbytes", zero=True)
        weight = positive(weight, "weight")
        if count != 1:
            count = whole(count, "count")
            nbytes, weight, cap = nbytes * count, weight * count, cap * count
            flow.nbytes = nbytes
            uses = self.sim.sharing._for_many(pools, uses, count)
        if self.sim.timeline is not None:
            self._departs(flow)
        flow._begin(self.sim, nbytes, pools, uses, weight, cap, priority, delay, None)
        return flow

    def route(self, source: Place, destination: Place, on: str | None = None) -> Route:
        """The route from one place to another, which is cached."""
        key = (source, destination, on)
        found = self._routes.get(key)
        if found is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            found = self._routes[key] = self._find(source, destination, on, 0)
        return found

    # Pools by name

    def fabric(self, on: str | None = None) -> _Fabric:
        """The graph, pools and router of one network."""
        name = self.cluster.network_name(on)
        if name not in self._fabrics:
            self._fabrics[name] = _Fabric(self, name)
        return self._fabrics[name]

    def link(self, number: int, on: str | None = None) -> Pool:
        """The pool of a directed link: 2e runs from `u[e]` to `v[e]` of the network's graph, and 2e + 1 runs back."""
        fabric = self.fabric(on)
        if not 0 <= number < len(fabric.rates):
            raise InputError(f"link {number} does not exist; expected 0 to {len(fabric.rates) - 1}", where=f"network.{fabric.name}")
        key = ("link", fabric.name, number)
        if key not in self._pools:
            u, v = fabric.ends(number)
            self._pools[key] = Pool._existing(self.sim, fabric.first + number, f"{fabric.name} link {number} from {u} to {v}")
        return self._pools[key]

    def uplink(self, node: int, nic: int = 0, on: str | None = None) -> Pool:
        """The pool of the link out of a node."""
        return self.link(self._host_link(node, nic, on), on)

    def downlink(self, node: int, nic: int = 0, on: str | None = None) -> Pool:
        """The pool of the link into a node."""
        return self.link(self._host_link(node, nic, on) ^ 1, on)

    def _host_link(self, node: int, nic: int, on: str | None) -> int:
        fabric = self.fabric(on)
        link = int(fabric.graph.attachment[1][fabric.endpoint(node, nic)])
        if link < 0:
            raise InputError(f"node {node} has several links; name one with link()", where=f"network.{fabric.name}")
        return link

    def aggregation(self, switch: int, on: str | None = None) -> Pool:
        """The pool of the reductions in a switch; a switch that cannot reduce is an error."""
        fabric = self.fabric(on)
        described = self.cluster.networks[fabric.name].switch
        if described is None or not described.aggregate:
            raise InputError("its switches cannot aggregate (switch.aggregate is 0 or unknown)", where=f"network.{fabric.name}")
        name = f"{fabric.name} switch {switch} aggregation"
        return self._named(("aggregation", fabric.name, switch), float(described.aggregate), name)

    def memory(self, node: int) -> Pool:
        """The pool of a node's memory."""
        tier = self.cluster.node(node).memory()
        if tier.bandwidth is None:
            raise InputError(f"memory {tier.called} of node {node}: bandwidth is unknown", where=self.cluster.name)
        return self._named(("memory", node), float(tier.bandwidth) * tier.count, f"memory of node {node}")

    def storage(self, node: int, tier: str, operation: str = "read") -> Pool:
        """The pool of a disk or file system, for `"read"` or `"write"`; all nodes share the pool of a file system on the network."""
        if operation not in ("read", "write"):
            raise unknown("operation", str(operation), ("read", "write"))
        found = self.cluster.node(node).memory(tier)
        shared = found.attached == "network"
        whole = (found.aggregate_write_bandwidth or found.aggregate_bandwidth) if operation == "write" else found.aggregate_bandwidth
        each = (found.write_bandwidth or found.bandwidth) if operation == "write" else found.bandwidth
        rate = whole if shared and whole is not None else each
        if rate is None:
            raise InputError(f"{found.called} of node {node}: bandwidth is unknown", where=self.cluster.name)
        capacity = float(rate) if shared else float(rate) * found.count
        key = ("storage", None if shared else node, found.called, operation)
        return self._named(key, capacity, f"{found.called} {operation}" if shared else f"{found.called} {operation} of node {node}")

    def _named(self, key: Any, capacity: float, name: str) -> Pool:
        if key not in self._pools:
            self._pools[key] = Pool(self.sim, capacity, name)
        return self._pools[key]

    # Routes

    def _place(self, place: Place) -> tuple[int, str | None]:
        """The (node, part of it or None) of a place."""
        found = self._places.get(place)
        if found is None:
            node, part = self._parsed(place)
            self.cluster.node(node)
            found = self._places[place] = (node, part)
        return found

    def _parsed(self, place: Place) -> tuple[int, str | None]:
        if isinstance(place, int | np.integer) and not isinstance(place, bool):
            return int(place), None
        match = _PLACE.fullmatch(place) if isinstance(place, str) else None
        if match is None:
            raise InputError(f'found {str(place)[:60]!r}; expected a node number, or a place such as "n17" or "n17/device:3"')
        return int(match.group(1)), match.group(2)

    def _find(self, source: Place, destination: Place, on: str | None, flow: int) -> Route:
        (a, part_a), (b, part_b) = self._place(source), self._place(destination)
        if a == b:
            return self._copy(a) if part_a == part_b or not (part_a and part_b) else self._inside(a, part_a, part_b)
        name = self.cluster.network_name(on)
        nic_a, out = self._exit(a, part_a, name)
        nic_b, back = self._exit(b, part_b, name)
        across = self._across(a, nic_a, b, nic_b, name, flow)
        if not out and not back:
            return across
        into = self._hops(b, tuple(reversed([(kind, end, start, rate, late) for kind, start, end, rate, late in back])))
        return _joined([self._hops(a, out), across, into])

    def _copy(self, node: int) -> Route:
        tier = self.cluster.node(node).memory()
        cap = math.inf if tier.copy_bandwidth_per_core is None else float(tier.copy_bandwidth_per_core)
        return Route((self.memory(node)._index,), (1.0,), float(tier.latency or 0.0) * self.model.latency_factor, cap)

    def _inside(self, node: int, start: str, end: str) -> Route:
        hops = self.cluster.path(f"n{node}/{start}", f"n{node}/{end}").links
        return self._hops(node, tuple((h.kind, h.start, h.end, h.rate, h.latency) for h in hops))

    def _exit(self, node: int, part: str | None, network: str) -> tuple[int, tuple[Any, ...]]:
        """The NIC by which a part of a node reaches a network, counted on that network, and the hops to it: least latency, then fewest
        hops.
        """
        if part is None:
            return 0, ()
        key = ("exit", self.cluster.node(node).group.name, part, network)
        if key not in self._routes:
            ways = []
            own = [nic for nic in self.cluster.node(node).nics if nic.network == network]
            for k, nic in enumerate(own):
                if part == f"nic:{nic.index}":
                    ways = [((0, 0.0, 0, k), k, ())]
                    break
                if not part.startswith("nic:"):
                    hops = self.cluster.path(f"n{node}/{part}", f"n{node}/nic:{nic.index}").links
                    unknown_hops = sum(h.latency is None for h in hops)
                    length = (unknown_hops, math.fsum(h.latency or 0.0 for h in hops), len(hops), k)
                    ways.append((length, k, tuple((h.kind, h.start, h.end, h.rate, h.latency) for h in hops)))  # type: ignore[arg-type]
            if not ways:
                raise InputError(f"node {node} has no NIC on network {network} that {part} can reach", where=self.cluster.name)
            self._routes[key] = min(ways)[1:]  # type: ignore[assignment]
        return self._routes[key]  # type: ignore[return-value]

    def _across(self, a: int, nic_a: int, b: int, nic_b: int, name: str, flow: int) -> Route:
        fabric = self.fabric(name)
        try:
            links = fabric.router.route(fabric.endpoint(a, nic_a), fabric.endpoint(b, nic_b), flow)
        except InputError as error:
            if "cannot reach" not in str(error):
                raise
            raise InputError(
                f"node {a} NIC {nic_a} cannot reach node {b} NIC {nic_b}: no links join them", where=f"network.{name}"
            ) from None
        use: dict[int, float] = {}
        latency = 2 * fabric.graph.endpoint_latency
        for link in links:
            rate, late = fabric.rates[link], float(fabric.graph.latency[link >> 1])
            if math.isnan(rate) or math.isnan(late):
                what = "rate" if math.isnan(rate) else "latency"
                raise InputError(
                    f"{what} of link {link} is unknown, but a flow from node {a} to node {b} needs it", where=f"network.{name}"
                )
            latency += late
            use[fabric.first + link] = use.get(fabric.first + link, 0.0) + 1.0
            if self.model.crosstraffic:
                back = fabric.first + (link ^ 1)
                use[back] = use.get(back, 0.0) + self.model.crosstraffic
        if fabric.switches >= 0:
            for link in links[1:]:
                use[fabric.switches + fabric.ends(link)[0]] = 1.0
        return Route(tuple(use), tuple(use.values()), latency * self.model.latency_factor, links=tuple(links))

    def _hops(self, node: int, hops: tuple[tuple[str, str, str, float | None, float | None], ...]) -> Route:
        pools: list[int] = []
        total = 0.0
        for kind, start, end, rate, late in hops:
            if rate is None or late is None:
                what = "rate" if rate is None else "latency"
                raise InputError(f"{what} of the {kind} link from {start} to {end} of node {node} is unknown", where=self.cluster.name)
            total += late
            if rate == math.inf:
                continue
            capacity = float(rate) * self.model.bandwidth_factor
            if self._is_switch(node, kind, start, end):
                # A part sends to all others through one port of the switch, and receives from all through another.
                pools.append(self._named(("out", node, kind, start), capacity, f"{kind} out of {start} of node {node}")._index)
                pools.append(self._named(("in", node, kind, end), capacity, f"{kind} into {end} of node {node}")._index)
            else:
                pools.append(self._named(("hop", node, kind, start, end), capacity, f"{kind} from {start} to {end} of node {node}")._index)
        return Route(tuple(pools), (1.0,) * len(pools), total * self.model.latency_factor)

    def _is_switch(self, node: int, kind: str, start: str, end: str) -> bool:
        if start.split(":")[0] != end.split(":")[0]:
            return False
        return any(link.kind == kind and link.topology == "switch" for link in self.cluster.node(node).type.links)

    # Timeline

    def _departs(self, flow: Flow) -> None:
        node = self._place(flow.source)[0]
        busy = self._busy_lanes.setdefault(node, set())
        flow._lane = next(k for k in range(len(busy) + 1) if k not in busy)
        busy.add(flow._lane)

    def _arrived(self, flow: Flow) -> None:
        timeline, sim = self.sim.timeline, self.sim
        if timeline is None or flow._lane < 0:
            return
        node, target = self._place(flow.source)[0], self._place(flow.destination)[0]
        self._busy_lanes[node].discard(flow._lane)
        track = timeline.track(self.cluster.node(node).name, f"out {flow._lane}")
        label = f"to {self.cluster.node(target).name}"
        timeline.span(track, label, flow.started, sim.now, "flow", {"bytes": flow.nbytes})
        flow._lane = -1


def _joined(routes: list[Route]) -> Route:
    use: dict[int, float] = {}
    for route in routes:
        for pool, factor in zip(route.pools, route.uses, strict=True):
            use[pool] = use.get(pool, 0.0) + factor
    links = tuple(link for route in routes for link in route.links)
    return Route(tuple(use), tuple(use.values()), math.fsum(r.latency for r in routes), min(r.cap for r in routes), links)
