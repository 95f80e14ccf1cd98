"""The path from one place of a cluster to another: through the links of a node, out of a NIC, across a network, and into another node."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from armillary.cluster import schema as s
from armillary.cluster.node import PlacedNode
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: An endpoint of a network by number, or text such as "n17", "n17/device:3", "n17/socket:0" or "n17/nic:2".
Place: TypeAlias = int | str


@dataclass(frozen=True)
class Hop:
    """One link of a path: its kind, its two ends, and its bytes/s and seconds (None if unknown)."""

    kind: str
    start: str
    end: str
    rate: float | None
    latency: float | None


@dataclass(frozen=True)
class Path:
    """The links in order, the seconds from end to end and the bytes/s of the slowest link, which are None if
    those of any link are unknown.
    """

    links: tuple[Hop, ...]
    latency: float | None
    rate: float | None


_PLACE = re.compile(r"n([0-9]{1,9})(?:/(device|socket|nic):([0-9]{1,9}))?")
#: The number of NIC pairs that are tried before two nodes count as unreachable.
_MOST_TRIES = 256


def path(cluster: Cluster, a: Place, b: Place, network: str | None = None) -> Path:
    """See `Cluster.path`."""
    if isinstance(a, int | np.integer) and isinstance(b, int | np.integer):
        return _across(cluster, int(a), int(b), cluster.network_name(network))
    start, end = (_place(cluster, x, network) for x in (a, b))
    if start[0] == end[0]:
        return _whole(_inside(cluster, *start)[end[1]])
    return _between(cluster, start, end, network)


def alpha_beta(cluster: Cluster, a: Place, b: Place, network: str | None = None) -> tuple[float, float]:
    """See `Cluster.alpha_beta`."""
    way = path(cluster, a, b, network)
    if way.latency is None or way.rate is None:
        unknown = "latency" if way.latency is None else "rate"
        hop = next(h for h in way.links if getattr(h, unknown) is None)
        raise InputError(f"{unknown} of the {hop.kind} link from {hop.start} to {hop.end} is unknown", where=cluster.name)
    return way.latency, (0.0 if math.isinf(way.rate) else 1.0 / way.rate)


def endpoint_of(cluster: Cluster, node: int, nic: int, network: str) -> int:
    """The number of the `nic`-th endpoint that a node has on a network."""
    placed, first = cluster.node(node), 0
    for g in cluster.groups:
        own = sum(x.count for x in g.node.nics if x.network == network)
        if g is placed.group:
            if not 0 <= nic < own:
                raise InputError(f"node {placed.name} has {own} NICs on network {network}, no NIC {nic}")
            return first + placed.rank * own + nic
        first += g.count * own
    raise InputError(f"node {node} does not exist")


def node_of(cluster: Cluster, endpoint: int, network: str) -> tuple[int, int]:
    """The (node, NIC on that network) of an endpoint."""
    first = nodes = 0
    for g in cluster.groups:
        own = sum(x.count for x in g.node.nics if x.network == network)
        if endpoint < first + g.count * own:
            return nodes + (endpoint - first) // own, (endpoint - first) % own
        first, nodes = first + g.count * own, nodes + g.count
    raise InputError(f"endpoint {endpoint} does not exist; network {network} has 0 to {first - 1}")


def _place(cluster: Cluster, place: Place, network: str | None) -> tuple[int, str]:
    """The (node, vertex inside it) of a place."""
    if isinstance(place, int | np.integer):
        name = cluster.network_name(network)
        node, nic = node_of(cluster, int(place), name)
        own = [x.index for x in cluster.node(node).nics if x.network == name]
        return node, f"nic:{own[nic]}"
    match = _PLACE.fullmatch(place)
    if match is None:
        raise InputError(f'found "{place[:60]}"; expected a place such as "n17", "n17/device:3", "n17/socket:0", "n17/nic:2"')
    placed = cluster.node(int(match.group(1)))
    if match.group(2) is None:
        return placed.index, _vertices(placed)[0]
    vertex = f"{match.group(2)}:{int(match.group(3))}"
    if vertex not in _vertices(placed):
        raise InputError(f"node {placed.name} has no {vertex}")
    return placed.index, vertex


def _vertices(node: PlacedNode) -> list[str]:
    kinds = (("socket", len(node.sockets)), ("device", len(node.devices)), ("nic", len(node.nics)))
    return [f"{kind}:{i}" for kind, count in kinds for i in range(count)] or ["node"]


def _inside(cluster: Cluster, node: int, start: str) -> dict[str, tuple[Hop, ...]]:
    """The path from one vertex of a node to each other vertex, which is the same for all nodes of the group."""
    placed = cluster.node(node)
    key = ("inside", placed.group.name, start)
    if key not in cluster.memo:
        cluster.memo[key] = _ways(placed, start)
    return cluster.memo[key]


def _ways(node: PlacedNode, start: str) -> dict[str, tuple[Hop, ...]]:
    """Finds paths by least latency, then fewest links, then lowest index; a link of unknown latency is used
    only if there is no other path.
    """
    edges: dict[str, list[Hop]] = {}
    for hop in _hops(node):
        edges.setdefault(hop.start, []).append(hop)
    found: dict[str, tuple[Hop, ...]] = {}
    tie = itertools.count()
    waiting: list[tuple[int, float, int, int, str, tuple[Hop, ...]]] = [(0, 0.0, 0, next(tie), start, ())]
    while waiting:
        unknown, latency, hops, _, vertex, way = heapq.heappop(waiting)
        if vertex in found:
            continue
        found[vertex] = way
        for hop in edges.get(vertex, ()):
            if hop.end not in found:
                step = (unknown + (hop.latency is None), latency + (hop.latency or 0.0), hops + 1, next(tie), hop.end, (*way, hop))
                heapq.heappush(waiting, step)
    return found


def _hops(node: PlacedNode) -> list[Hop]:
    """Every link inside a node in both directions; if the file names none, the parts are joined by links of unknown speed."""
    hops: list[Hop] = []
    for link in node.type.links:
        for a, b, share in _joined(link, node):
            up, down = _both(link.rate), _both(link.latency)
            hops.append(Hop(link.kind, a, b, None if up[0] is None else up[0] * share, down[0]))
            hops.append(Hop(link.kind, b, a, None if up[1] is None else up[1] * share, down[1]))
    joined = {frozenset((h.start.split(":")[0], h.end.split(":")[0])) for h in hops}
    if frozenset(("socket",)) not in joined:
        for i in range(1, len(node.sockets)):
            hops += _unknown("socket", f"socket:{i - 1}", f"socket:{i}")
    if frozenset(("socket", "device")) not in joined and node.sockets:
        for device in node.devices:
            hops += _unknown("device", _socket_of(node, device.near, device.index, len(node.devices)), f"device:{device.index}")
    if frozenset(("socket", "nic")) not in joined and frozenset(("device", "nic")) not in joined:
        for nic in node.nics:
            end = nic.near if nic.near and nic.near.startswith("device:") else None
            end = end or (_socket_of(node, nic.near, nic.index, len(node.nics)) if node.sockets else None)
            ends = [end] if end else [f"device:{d.index}" for d in node.devices]
            # The network's figures include the seconds of a NIC, so its connection to the node adds nothing here.
            hops += [Hop("attachment", x, y, math.inf, 0.0) for e in ends for x, y in ((f"nic:{nic.index}", e), (e, f"nic:{nic.index}"))]
    return hops


def _unknown(kind: str, a: str, b: str) -> list[Hop]:
    return [Hop(kind, a, b, None, None), Hop(kind, b, a, None, None)]


def _both(value: Any) -> tuple[float | None, float | None]:
    return (value.up, value.down) if isinstance(value, s.Duplex) else (value, value)


def _socket_of(node: PlacedNode, near: str | None, index: int, count: int) -> str:
    """The socket that a part is attached to: the one that it names, or an even share."""
    kind, _, number = (near or "").partition(":")
    if kind == "socket":
        return near or ""
    if kind == "numa":
        return f"socket:{node.numa[int(number)].socket}"
    return f"socket:{index * len(node.sockets) // max(count, 1)}"


def _members(node: PlacedNode, end: str) -> list[str]:
    if end in ("socket", "nic"):
        return [f"{end}:{i}" for i in range(len(node.sockets if end == "socket" else node.nics))]
    return [f"device:{d.index}" for d in node.devices if end == "device" or d.type.name == end]


def _joined(link: s.Link, node: PlacedNode) -> list[tuple[str, str, float]]:
    """The (end, end, share of the rate) of every pair that a link joins; a rate is per endpoint, so several neighbours share it."""
    left, right = _members(node, link.ends[0]), _members(node, link.ends[1])
    if link.pairs is not None:
        return [(left[a], right[b], 1.0) for a, b in link.pairs]
    if link.ends[0] != link.ends[1]:
        return _tree(link, node, left, right)
    count = len(left)
    if link.topology in ("switch", "all-to-all", "tree"):
        share = 1.0 / max(count - 1, 1) if link.topology == "all-to-all" else 1.0
        return [(a, b, share) for a, b in itertools.combinations(left, 2)]
    if link.topology == "ring":
        around = list(zip(left, left[1:] + left[:1], strict=True)) if count > 2 else [(left[0], left[-1])][: count - 1]
        return [(a, b, 0.5 if count > 2 else 1.0) for a, b in around]
    if link.topology == "pairs":
        return [(left[i], left[i + 1], 1.0) for i in range(0, count - 1, 2)]
    dims = [int(d) for d in link.dims] if link.dims else [count]
    return _mesh(left, dims)


def _tree(link: s.Link, node: PlacedNode, left: list[str], right: list[str]) -> list[tuple[str, str, float]]:
    if link.ends[0] != "socket" and link.ends[1] == "socket":
        left, right = right, left
    if left and left[0].startswith("socket"):
        things: Any = node.nics if right and right[0].startswith("nic") else node.devices
        by_name = {f"{'nic' if things is node.nics else 'device'}:{t.index}": t for t in things}
        found = []
        for i, name in enumerate(right):
            near = by_name[name].near
            if near is not None and near.startswith("device"):
                continue
            found.append((_socket_of(node, near, i, len(right)), name, 1.0))
        return found
    nears = {f"nic:{nic.index}": nic.near or "" for nic in node.nics}
    shares = {name: left[i * len(left) // len(right)] for i, name in enumerate(right)}
    return [(nears[name] if nears.get(name) in left else shares[name], name, 1.0) for name in right]


def _mesh(names: list[str], dims: list[int]) -> list[tuple[str, str, float]]:
    if math.prod(dims) != len(names):
        raise InputError(f"link: dims {dims} hold {math.prod(dims)} places; expected {len(names)}")
    at = np.arange(len(names)).reshape(dims)
    share = 1.0 / (2 * len(dims))
    pairs = []
    for axis in range(len(dims)):
        a, b = np.take(at, range(dims[axis] - 1), axis), np.take(at, range(1, dims[axis]), axis)
        pairs += [(names[x], names[y], share) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    return pairs


def _across(cluster: Cluster, a: int, b: int, name: str) -> Path:
    """The path from endpoint to endpoint over the network."""
    key = ("across", name, a, b)
    if key not in cluster.memo:
        graph = cluster.graph(name)
        try:
            links = graph.routes(np.array([a]), np.array([b]))[0]
        except InputError as error:
            if "cannot reach" not in str(error):
                raise
            raise InputError(_unreachable(cluster, a, b, name), where=f"network.{name}") from None
        hops = []
        for link in links[links >= 0]:
            edge, back = int(link) >> 1, int(link) & 1
            u, v = (graph.v[edge], graph.u[edge]) if back else (graph.u[edge], graph.v[edge])
            rate, late = float(graph.rate[edge]) * graph.stripes, float(graph.latency[edge])
            ends = (f"{name}:{u}", f"{name}:{v}")
            hops.append(Hop("network", *ends, None if math.isnan(rate) else rate, None if math.isnan(late) else late))
        way = _whole(tuple(hops))
        if hops and way.latency is not None:
            both = 2 * graph.endpoint_latency
            way = Path(way.links, None if math.isnan(both) else way.latency + both, way.rate)
        if len(cluster.memo) > 100_000:
            cluster.memo.clear()
        cluster.memo[key] = way
    return cluster.memo[key]


def _unreachable(cluster: Cluster, a: int, b: int, name: str) -> str:
    (node_a, nic_a), (node_b, nic_b) = node_of(cluster, a, name), node_of(cluster, b, name)
    text = f"node {node_a} NIC {nic_a} cannot reach node {node_b} NIC {nic_b}"
    network = cluster.networks[name]
    if network.topology == "rail" and network.spines == 0:
        text += f": rails {nic_a % network.rails} and {nic_b % network.rails} do not meet (spines = 0)"
    return text


def _between(cluster: Cluster, start: tuple[int, str], end: tuple[int, str], network: str | None) -> Path:
    """The path out of one node and into another, by the nearest NICs that can reach each other."""
    name = cluster.network_name(network)
    out, back = _exits(cluster, *start, name), _exits(cluster, *end, name)
    ways = sorted(((_length((*x, *y)), i, j) for i, (_, x) in enumerate(out) for j, (_, y) in enumerate(back)))
    for _, i, j in ways[:_MOST_TRIES]:
        try:
            middle = _across(cluster, out[i][0], back[j][0], name)
        except InputError:
            continue
        inwards = tuple(Hop(h.kind, h.end, h.start, h.rate, h.latency) for h in reversed(back[j][1]))
        whole = _whole((*out[i][1], *middle.links, *inwards))
        edges = _whole(middle.links).latency
        if whole.latency is None or middle.latency is None or edges is None:
            return Path(whole.links, None, whole.rate)
        return Path(whole.links, whole.latency - edges + middle.latency, whole.rate)
    raise InputError(f"node {start[0]} {start[1]} cannot reach node {end[0]} {end[1]}", where=f"network.{name}")


def _exits(cluster: Cluster, node: int, vertex: str, network: str) -> list[tuple[int, tuple[Hop, ...]]]:
    """The (endpoint, path to it) of each NIC of a node on a network, or of only this NIC if the place is one."""
    placed, ways = cluster.node(node), _inside(cluster, node, vertex)
    own = [x for x in placed.nics if x.network == network]
    found = [(k, ways[f"nic:{x.index}"]) for k, x in enumerate(own) if f"nic:{x.index}" in ways]
    if vertex.startswith("nic:"):
        found = [(k, way) for k, way in found if not way]
    if not found:
        raise InputError(f"node {placed.name} has no NIC on network {network} that {vertex} can reach")
    return [(endpoint_of(cluster, node, k, network), way) for k, way in found]


def _length(way: tuple[Hop, ...]) -> tuple[int, float, int]:
    """The length of a path: first its links of unknown latency, then its latency, then its number of links."""
    return sum(h.latency is None for h in way), math.fsum(h.latency or 0.0 for h in way), len(way)


def _whole(hops: tuple[Hop, ...]) -> Path:
    latency = None if any(h.latency is None for h in hops) else math.fsum(h.latency or 0.0 for h in hops)
    rate = None if any(h.rate is None for h in hops) else min((h.rate or 0.0 for h in hops), default=math.inf)
    return Path(hops, latency, rate)
