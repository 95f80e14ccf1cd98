"""Builds the graph of each topology with array arithmetic.

Endpoints take the ports of a topology in order. The latency of an edge is that of its cable plus half a switch at each switch end, and a
NIC at the link of an endpoint, so that the latencies of a route add up to two NICs, every switch on the way, and all cables. A cable counts
only if both its length and the seconds per metre are known; without the figures of the NIC and the switch the latency is unknown (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.cluster import networks as n
from armillary.cluster.graph import ENDPOINT, GLOBAL, HOST, LOCAL, SWITCH, Graph
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

MOST_EDGES = 50_000_000


def graph_of(cluster: Cluster, name: str) -> Graph:
    """The graph of one network of a cluster, which is built once."""
    key = ("graph", name)
    if key not in cluster.memo:
        network = cluster.networks[name]
        cluster.memo[key] = _BUILDERS[type(network)](network, _Attached(cluster, name))
    return cluster.memo[key]


class _Attached:
    """The endpoints of a network, and the rate and latency of their edges."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        network = cluster.networks[name]
        rates, nics, numbers = [], [], []
        for g in cluster.groups:
            own = [(nic.bandwidth, nic.latency) for nic in g.node.nics if nic.network == name for _ in range(nic.count)]
            _room(len(own) * g.count, name)
            rates.append(np.tile(np.array([np.nan if rate is None else rate for rate, _ in own], float), g.count))
            nics.append(np.tile(np.array([np.nan if late is None else late for _, late in own], float), g.count))
            numbers.append(np.tile(np.arange(len(own), dtype=np.int32), g.count))
        #: (group, endpoints) in the order of endpoint numbers.
        self.groups = [(g.name, len(r)) for g, r in zip(cluster.groups, rates, strict=True)]
        self.nic_rate = np.concatenate(rates)
        self.count = len(self.nic_rate)
        #: The number of the NIC in its node, which is the rail of the endpoint.
        self.number = np.concatenate(numbers)
        link = math.nan if network.rate is None else float(network.rate)
        self.link_rate = link
        self.rate = np.fmin(self.nic_rate, link)
        late = network.latency
        nic = math.nan if late.nic is None else float(late.nic)
        self.nic = np.where(np.isnan(np.concatenate(nics)), nic, np.concatenate(nics))
        self.switch = math.nan if late.switch is None else float(late.switch)
        self.local, self.world = (_cable(network, length) for length in (network.length.local, network.length.world))
        if late.path is not None:
            self.nic, self.switch, self.local, self.world = np.full(self.count, float(late.path) / 2), 0.0, 0.0, 0.0

    @property
    def direct_nic(self) -> float:
        """Seconds in a NIC of a network without switches."""
        return float(self.nic[0]) if self.count else 0.0

    @property
    def direct_rate(self) -> float:
        """Bytes/s of the links of a network without switches."""
        return self.link_rate if not math.isnan(self.link_rate) or not self.count else float(self.rate[0])


def _cable(network: n.Network, length: float | None) -> float:
    metre = network.latency.metre
    return 0.0 if metre is None or length is None else float(metre) * float(length)


def _room(edges: int, name: str) -> None:
    if edges > MOST_EDGES:
        raise InputError(f"the graph would have {edges:,} edges; at most {MOST_EDGES:,} can be built", where=f"network.{name}")


@dataclass
class _Edges:
    """Collects edges."""

    parts: list[tuple[np.ndarray, np.ndarray, Any, Any, int]]

    def add(self, u: np.ndarray, v: np.ndarray, rate: Any, latency: Any, kind: int) -> None:
        self.parts.append((u, v, rate, latency, kind))

    def arrays(self) -> dict[str, Any]:
        def joined(pick: Callable[[tuple[Any, ...]], Any], dtype: Any) -> np.ndarray:
            return np.concatenate([np.broadcast_to(np.asarray(pick(p), dtype), p[0].shape) for p in self.parts]).astype(dtype)

        kinds = joined(lambda p: p[4], np.int8)
        return {
            "u": joined(lambda p: p[0], np.int32),
            "v": joined(lambda p: p[1], np.int32),
            "rate": joined(lambda p: p[2], float),
            "latency": joined(lambda p: p[3], float),
            "link_kind": kinds,
            "weight": np.ones(len(kinds), np.int32),
        }


def _switched(a: _Attached, leaf_of: np.ndarray, groups: np.ndarray, edges: _Edges, reach: int, stripes: int = 1) -> Graph:
    """A network of endpoints, followed by switches; endpoint i is attached to switch `leaf_of[i]`."""
    first = a.count
    host = np.arange(a.count, dtype=np.int32)
    hosts = _Edges([])
    hosts.add(host, (leaf_of + first).astype(np.int32), a.rate, a.nic + a.switch / 2 + a.local, HOST)
    kind = np.concatenate([np.full(first, ENDPOINT, np.int8), np.full(len(groups), SWITCH, np.int8)])
    group = np.concatenate([groups[leaf_of], groups]).astype(np.int32)
    shifted = [(u + first, v + first, rate, late, k) for u, v, rate, late, k in edges.parts]
    arrays = _Edges(hosts.parts + shifted).arrays()
    return Graph(a.name, kind, group, host, **arrays, stripes=stripes, reach=reach)


def _star(network: n.Star, a: _Attached) -> Graph:
    return _switched(a, np.zeros(a.count, np.int64), np.zeros(1, np.int32), _Edges([]), 2)


def _dragonfly(network: n.Dragonfly, a: _Attached) -> Graph:
    sizes = np.array(network.sizes, np.int64)
    groups, links = len(sizes), int(network.links_between_groups)
    local = int((sizes * (sizes - 1) // 2).sum()) * network.links_in_group
    _room(local + groups * (groups - 1) // 2 * links + a.count, a.name)
    first = np.concatenate([[0], np.cumsum(sizes)])
    edges = _Edges([])
    for size in np.unique(sizes):
        u, v = np.triu_indices(size, 1)
        base = first[:-1][sizes == size][:, None]
        for _ in range(network.links_in_group):
            edges.add((base + u).ravel(), (base + v).ravel(), a.link_rate, a.switch + a.local, LOCAL)
    i, j = np.triu_indices(groups, 1)
    ports = links * (groups - 1)
    for parallel in range(links):
        # In a palmtree, port x meets the port that is as far from the other end of the row.
        there = links - 1 - parallel if network.world == "palmtree" else parallel
        ends = [
            first[own] + (which * (groups - 1) + _port(network.world, own, other, groups)) * sizes[own] // ports
            for own, other, which in ((i, j, parallel), (j, i, there))
        ]
        edges.add(ends[0], ends[1], a.link_rate, a.switch + a.world, GLOBAL)
    graph = _switched(a, np.arange(a.count) // network.endpoints_per_switch, np.repeat(np.arange(groups, dtype=np.int32), sizes), edges, 5)
    # A minimal route takes one global link, because two of them (weight 8) are longer than local, global, local (6).
    graph.weight[graph.link_kind == GLOBAL] = 4
    return graph


def _port(arrangement: str, own: np.ndarray, other: np.ndarray, groups: int) -> np.ndarray:
    """The global port that a group uses for another group."""
    if arrangement == "absolute":
        return np.where(other < own, other, other - 1)
    ahead = (other - own) % groups
    if arrangement == "relative":
        return ahead - 1
    if arrangement == "palmtree":
        return groups - 1 - ahead
    return np.where(2 * ahead <= groups, 2 * (ahead - 1), 2 * (groups - ahead) - 1)


def _fat_tree(network: n.FatTree, a: _Attached) -> Graph:
    levels, tree = network.shape, network.tree()
    if tree is None:
        raise InputError("no wiring fits these levels", where=f"network.{a.name}")
    children, parents, parallel = tree
    _room(a.count + sum(lv.switches * lv.up for lv in levels), a.name)
    firsts = np.concatenate([[0], np.cumsum([int(lv.switches) for lv in levels])])
    edges, groups, above = _Edges([]), [], 1
    pods = int(levels[0].switches) // children[-1] if len(levels) > 1 else 1
    for i, level in enumerate(levels):
        top = i == len(levels) - 1
        per_pod = int(level.switches) // (int(levels[0].switches) // pods) if not top else 0
        groups.append(np.full(level.switches, -1) if top else np.arange(level.switches) // max(per_pod, 1))
        if top:
            break
        # The lower switch (high digits, child d, t) meets the upper switch (high digits, parent w, t), where t are the choices at lower
        # levels.
        m, w = children[i + 1], parents[i + 1]
        high = int(level.switches) // (m * above)
        h, d, x, t = (q.ravel() for q in np.meshgrid(np.arange(high), np.arange(m), np.arange(w), np.arange(above), indexing="ij"))
        lower, upper = firsts[i] + (h * m + d) * above + t, firsts[i + 1] + (h * w + x) * above + t
        rate = float(level.rate) if level.rate is not None else a.link_rate
        kind = GLOBAL if i == len(levels) - 2 else LOCAL
        cable = a.world if kind == GLOBAL else a.local
        for _ in range(parallel[i + 1]):
            edges.add(lower, upper, rate, a.switch + cable, kind)
        above *= w
    return _switched(a, np.arange(a.count) // levels[0].down, np.concatenate(groups).astype(np.int32), edges, 2 * len(levels))


def _direct(a: _Attached, vertices: int, u: np.ndarray, v: np.ndarray, reach: int) -> Graph:
    """A network whose endpoints are its routers; vertices that no endpoint takes are switches."""
    _room(len(u), a.name)
    edges = _Edges([])
    edges.add(u, v, a.direct_rate, a.switch + a.local, LOCAL)
    kind = np.where(np.arange(vertices) < a.count, ENDPOINT, SWITCH).astype(np.int8)
    endpoints = np.arange(a.count, dtype=np.int32)
    return Graph(a.name, kind, np.full(vertices, -1, np.int32), endpoints, **edges.arrays(), endpoint_latency=a.direct_nic, reach=reach)


def _grid(network: n.Torus, a: _Attached) -> Graph:
    dims = [int(d) for d in network.dims]
    wraps = network.topology == "torus"
    _room(network.offers * len(dims), a.name)
    at = np.arange(network.offers).reshape(dims)
    us, vs = [], []
    for axis, size in enumerate(dims):
        if size == 1:
            continue
        # In a ring of two, the way back is the same link.
        last = size if wraps and size > 2 else size - 1
        here = np.take(at, np.arange(last), axis=axis)
        us.append(here.ravel())
        vs.append(np.take(at, (np.arange(last) + 1) % size, axis=axis).ravel())
    empty = np.zeros(0, np.int64)
    reach = sum(d // 2 if wraps else d - 1 for d in dims)
    return _direct(a, network.offers, np.concatenate(us or [empty]), np.concatenate(vs or [empty]), max(reach, 1))


def _hypercube(network: n.Hypercube, a: _Attached) -> Graph:
    size = network.offers
    _room(size * network.dimension // 2, a.name)
    low = np.arange(size)
    us = [low[(low >> bit) & 1 == 0] for bit in range(network.dimension)]
    vs = [u | (1 << bit) for bit, u in enumerate(us)]
    return _direct(a, size, np.concatenate(us), np.concatenate(vs), int(network.dimension))


def _full(network: n.Full, a: _Attached) -> Graph:
    _room(a.count * (a.count - 1) // 2, a.name)
    u, v = np.triu_indices(a.count, 1)
    return _direct(a, a.count, u, v, 1)


def _rail(network: n.Rail, a: _Attached) -> Graph:
    rails, down, spines = int(network.rails), network.leaf_down, int(network.spines)
    rail = a.number % rails
    place = np.zeros(a.count, np.int64)
    for r in range(min(rails, int(a.number.max(initial=0)) + 1)):
        mine = np.flatnonzero(rail == r)
        place[mine] = np.arange(len(mine))
    leaves = int(place.max(initial=0)) // down + 1
    leaf_of = rail * leaves + place // down
    groups = np.concatenate([np.repeat(np.arange(rails), leaves), np.full(spines, -1)])
    edges = _Edges([])
    up = int(network.leaf_ports) - down
    _room(a.count + rails * leaves * up, a.name)
    if spines and up:
        leaf, port = (x.ravel() for x in np.meshgrid(np.arange(rails * leaves), np.arange(up), indexing="ij"))
        edges.add(leaf, rails * leaves + port % spines, a.link_rate, a.switch + a.world, GLOBAL)
    return _switched(a, leaf_of, groups.astype(np.int32), edges, 4)


def _nvl(network: n.Nvl, a: _Attached) -> Graph:
    domain, switches, links = int(network.domain), int(network.switches), int(network.links_per_device)
    domains = -(-a.count // domain)
    _room(a.count * links, a.name)
    device, link = (x.ravel() for x in np.meshgrid(np.arange(a.count), np.arange(links), indexing="ij"))
    own = device // domain
    edges = _Edges([])
    edges.add(device, a.count + own * switches + link % switches, a.link_rate, a.nic[device] + a.switch / 2 + a.local, LOCAL)
    kind = np.concatenate([np.full(a.count, ENDPOINT, np.int8), np.full(domains * switches, SWITCH, np.int8)])
    group = np.concatenate([np.arange(a.count) // domain, np.repeat(np.arange(domains), switches)]).astype(np.int32)
    return Graph(a.name, kind, group, np.arange(a.count, dtype=np.int32), **edges.arrays(), stripes=links, reach=2)


def _tiers(network: n.Tiers, a: _Attached) -> Graph:
    counts = [int(layer.count) for layer in network.layers]
    firsts = np.concatenate([[0], np.cumsum(counts)])
    edges = _Edges([])
    last = counts[-1]
    _room(int(firsts[-1]) + last * (last - 1) // 2, a.name)
    for i, layer in enumerate(network.layers):
        rate = a.link_rate if layer.rate is None else float(layer.rate)
        late = math.nan if layer.latency is None else float(layer.latency)
        if i + 1 < len(counts):
            child = np.arange(counts[i])
            edges.add(firsts[i] + child, firsts[i + 1] + child * counts[i + 1] // counts[i], rate, late, LOCAL)
        elif last > 1:
            u, v = np.triu_indices(last, 1)
            edges.add(firsts[i] + u, firsts[i] + v, rate, late, GLOBAL)
    kind = np.full(firsts[-1], SWITCH, np.int8)
    endpoints = _tier_endpoints(network, a, firsts)
    kind[endpoints] = ENDPOINT
    empty = np.zeros(0, np.int64)
    if not edges.parts:
        edges.add(empty, empty, 0.0, 0.0, LOCAL)
    group = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    late = a.direct_nic
    return Graph(
        a.name,
        kind,
        group,
        endpoints,
        **edges.arrays(),
        endpoint_latency=0.0 if math.isnan(late) else late,
        reach=2 * len(counts) + 1,
    )


def _tier_endpoints(network: n.Tiers, a: _Attached, firsts: np.ndarray) -> np.ndarray:
    """The vertex of each endpoint, because endpoints are numbered by group while layers have their own order."""
    starts = {layer.name: int(firsts[i]) for i, layer in enumerate(network.layers)}
    return np.concatenate([starts[group] + np.arange(size) for group, size in a.groups if size]).astype(np.int32)


def _file(network: n.File, a: _Attached) -> Graph:
    listed = network.edges
    vertices = len(listed.names)
    places = listed.endpoint_vertices(network.endpoints)[: a.count]
    kind = np.full(vertices, SWITCH, np.int8)
    kind[places] = ENDPOINT
    rate = np.where(np.isnan(listed.rate), a.link_rate, listed.rate)
    latency = np.where(np.isnan(listed.latency), a.switch + a.local, listed.latency)
    hanging = np.bincount(np.concatenate([listed.u, listed.v]), minlength=vertices) == 1
    host = (hanging & (kind == ENDPOINT))[listed.u] | (hanging & (kind == ENDPOINT))[listed.v]
    both = (kind[listed.u] == ENDPOINT) & (kind[listed.v] == ENDPOINT)
    link_kind = np.where(host & ~both, HOST, LOCAL).astype(np.int8)
    late = a.direct_nic
    return Graph(
        a.name,
        kind,
        np.full(vertices, -1, np.int32),
        places,
        listed.u,
        listed.v,
        rate,
        latency,
        link_kind,
        endpoint_latency=0.0 if math.isnan(late) else late,
        weight=np.ones(len(rate), np.int32),
    )


_BUILDERS: dict[type[n.Network], Callable[[Any, _Attached], Graph]] = {
    n.Star: _star,
    n.Dragonfly: _dragonfly,
    n.FatTree: _fat_tree,
    n.Torus: _grid,
    n.Mesh: _grid,
    n.Hypercube: _hypercube,
    n.Full: _full,
    n.Rail: _rail,
    n.Nvl: _nvl,
    n.Tiers: _tiers,
    n.File: _file,
}
