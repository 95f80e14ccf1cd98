"""A cluster as a SimGrid platform (XML version 4.1), so that it can be replayed there.

A torus, a fat tree whose wiring fits, and a dragonfly with at least as many switches per group as groups become `<cluster topology=…>`;
everything else is written vertex by vertex in a zone with shortest-path routing. SimGrid wires the groups of a dragonfly in its own order.
Hosts are nodes; `speed` is the flop/s of one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from armillary.cluster import networks as n
from armillary.cluster.graph import ENDPOINT
from armillary.cluster.paths import node_of
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: The speed of a core if the file does not state it, because SimGrid needs one.
_UNKNOWN_SPEED = 1e9


def write_simgrid(cluster: Cluster, path: Path) -> None:
    """Writes the platform file."""
    text = "\n".join(_platform(cluster)) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _platform(cluster: Cluster) -> Iterator[str]:
    yield "<?xml version='1.0'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1">'
    name = next(iter(cluster.networks), None)
    shape = None if name is None else _shape(cluster, name)
    if name is not None and shape is not None:
        yield from _as_cluster(cluster, name, shape)
    else:
        yield from _as_zone(cluster, name)
    yield "</platform>"


def _shape(cluster: Cluster, name: str) -> tuple[str, str] | None:
    """The (topology, topo_parameters) if SimGrid has that topology, and otherwise None."""
    network = cluster.networks[name]
    one_nic_each = len(cluster.groups) == 1 and cluster.endpoints(name) == cluster.nodes == network.offers
    if not one_nic_each:
        return None
    if isinstance(network, n.Torus) and network.topology == "torus":
        return "TORUS", ",".join(str(d) for d in network.dims)
    if isinstance(network, n.FatTree) and (tree := network.tree()) and not any(level.rate for level in network.shape):
        return "FAT_TREE", ";".join([str(len(tree[0])), *(",".join(map(str, row)) for row in tree)])
    # SimGrid gives each router one link to another group.
    if (
        isinstance(network, n.Dragonfly)
        and network.links_between_groups == 1
        and network.links_in_group == 1
        and len(set(network.sizes)) == 1
    ):
        groups, switches = int(network.groups), network.sizes[0]
        if switches >= groups:
            return "DRAGONFLY", f"{groups},1;1,1;{switches},1;{network.endpoints_per_switch}"
    return None


def _as_cluster(cluster: Cluster, name: str, shape: tuple[str, str]) -> Iterator[str]:
    network, g = cluster.networks[name], cluster.groups[0]
    rate = network.rate or g.node.nics[0].bandwidth
    # SimGrid has one latency for all links; it is chosen so that the longest routes take as long as here.
    hops = cluster.diameter(name)
    late = network.latency
    switches = hops if shape[0] == "TORUS" else hops - 1
    whole = float(late.path) if late.path is not None else 2 * float(late.nic or 0.0) + switches * float(late.switch or 0.0)
    delay = whole / max(hops, 1)
    if rate is None:
        raise InputError("unknown, and SimGrid needs it", where=f"network.{name}.rate")
    yield (
        f'  <cluster id={quoteattr(cluster.name)} prefix={quoteattr(g.name + "-")} suffix="" radical="0-{g.count - 1}"'
        f' speed="{_speed(cluster, 0):.17g}f" core="{_cores(cluster, 0)}" bw="{float(rate):.17g}Bps" lat="{delay:.17g}s"'
        f' topology="{shape[0]}" topo_parameters="{shape[1]}" sharing_policy="SPLITDUPLEX"/>'
    )


def _as_zone(cluster: Cluster, name: str | None) -> Iterator[str]:
    yield f'  <zone id={quoteattr(cluster.name)} routing="Dijkstra">'
    for i in range(cluster.nodes):
        yield f'    <host id={quoteattr(cluster.node(i).name)} speed="{_speed(cluster, i):.17g}f" core="{_cores(cluster, i)}"/>'
    if name is not None:
        yield from _edges(cluster, name)
    yield "  </zone>"


def _edges(cluster: Cluster, name: str) -> Iterator[str]:
    graph = cluster.graph(name)
    names = [f"{name}-{v}" for v in range(graph.vertices)]
    # Nodes with several NICs get links of their own, and so do NICs with a latency in networks whose endpoints are the routers.
    nic = 0.0 if math.isnan(graph.endpoint_latency) else graph.endpoint_latency
    several = cluster.endpoints(name) > cluster.nodes or nic > 0
    for end, vertex in enumerate(graph.endpoints):
        node = cluster.node(node_of(cluster, end, name)[0]).name
        names[vertex] = f"{name}-{vertex}" if several else node
    for vertex in range(graph.vertices):
        if graph.kind[vertex] != ENDPOINT or several:
            yield f"    <router id={quoteattr(names[vertex])}/>"
    links = [(names[u], names[v], rate, late) for u, v, rate, late in zip(graph.u, graph.v, graph.rate, graph.latency, strict=True)]
    if several:
        for end, vertex in enumerate(graph.endpoints):
            links.append((cluster.node(node_of(cluster, end, name)[0]).name, names[vertex], float(graph.rate.max()), nic))
    for i, (_, _, rate, late) in enumerate(links):
        if math.isnan(rate):
            raise InputError("unknown, and SimGrid needs it", where=f"network.{name}.rate")
        delay = 0.0 if math.isnan(late) else late
        yield f'    <link id="{i}" bandwidth="{rate:.17g}Bps" latency="{delay:.17g}s" sharing_policy="SPLITDUPLEX"/>'
    seen: set[frozenset[str]] = set()
    for i, (a, b, _, _) in enumerate(links):
        # SimGrid has one route between two vertices, so it cannot use parallel links beyond the first.
        if frozenset((a, b)) not in seen:
            seen.add(frozenset((a, b)))
            yield f'    <route src={quoteattr(a)} dst={quoteattr(b)}><link_ctn id="{i}" direction="UP"/></route>'


def _speed(cluster: Cluster, node: int) -> float:
    sockets = cluster.node(node).sockets
    peaks = [(socket.peak("fp64"), int(socket.cores or 0)) for socket in sockets]
    cores = sum(c for p, c in peaks if p is not None)
    return sum(float(p) for p, _ in peaks if p is not None) / cores if cores else _UNKNOWN_SPEED


def _cores(cluster: Cluster, node: int) -> int:
    return max(1, cluster.node(node).cores)
