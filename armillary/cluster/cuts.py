"""The bisection bandwidth, taper and diameter of a network.

If every port of a topology is used, fat trees, tori, meshes, hypercubes, stars, rails and NVLink domains have closed forms. For a
dragonfly, the bisection is the least over the candidate halvings (whole groups on either side, every group split, the endpoints cut off),
improved by swapping switches; it is exact wherever the network is small enough to enumerate. Tiers and networks from files get a spectral
lower bound.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.cluster import networks as n
from armillary.cluster.graph import GLOBAL, HOST, Graph
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: The largest networks for the spectral bound and for swapping switches, which work on dense matrices.
_MOST_SPECTRAL = 6000
_MOST_SWAPPED = 4000
#: Up to this many switches, every halving is improved until no swap helps.
_MOST_TRIED = 64


def is_bound(network: n.Network) -> bool:
    """Whether `bisection` gives only a lower bound for this network."""
    return isinstance(network, n.Tiers | n.File) or network.partial


def bisection(cluster: Cluster, name: str) -> float:
    """Bytes/s in one direction across the worst halving of the endpoints."""
    network, graph = cluster.networks[name], cluster.graph(name)
    ends = len(graph.endpoints)
    if ends < 2:
        raise InputError("a network with fewer than two endpoints has no bisection", where=f"network.{name}")
    if is_bound(network):
        return _spectral(graph)
    rate = _rate(graph, name)
    cut_off = _cut_off(graph)
    if isinstance(network, n.Torus):
        return rate * _grid_cut(tuple(sorted(int(d) for d in network.dims)), network.topology == "torus")
    if isinstance(network, n.Hypercube):
        return rate * (ends // 2)
    if isinstance(network, n.Full):
        return rate * (ends // 2) * (ends - ends // 2)
    if isinstance(network, n.Nvl):
        return rate * network.links_per_device * _odd_part(ends, int(network.domain))
    if isinstance(network, n.FatTree):
        return min(cut_off, *(capacity / 2 for capacity in _levels(network, graph)), math.inf)
    if isinstance(network, n.Rail):
        if network.spines == 0:
            per_rail = -(-ends // int(network.rails))
            return _host_rate(graph) * _odd_part(ends, per_rail)
        return min(cut_off, float(graph.rate[graph.link_kind == GLOBAL].sum()) / 2)
    if isinstance(network, n.Dragonfly):
        return min(cut_off, *(_cut(graph, side) for side in _dragonfly_halves(network, graph)))
    return cut_off


def diameter(cluster: Cluster, name: str) -> int:
    """The number of links between the two endpoints that are farthest apart."""
    graph = cluster.graph(name)
    known = _known_diameter(cluster.networks[name], len(graph.endpoints))
    if known is not None:
        return known
    from armillary.cluster.routes import farthest

    roots, up = graph.attachment
    distinct, counts = np.unique(roots, return_counts=True)
    hosts = 2 if (up >= 0).any() else 0
    most = int(farthest(graph.core.start, graph.core.neighbour, distinct.astype(np.int32)))
    if most < 0:
        raise InputError("some endpoints cannot reach each other, so the network has no diameter", where=f"network.{name}")
    return most + hosts if most or (counts > 1).any() else 0


def _known_diameter(network: n.Network, ends: int) -> int | None:
    full = network.offers == ends
    if isinstance(network, n.Torus) and full:
        return sum(int(d) // 2 if network.topology == "torus" else int(d) - 1 for d in network.dims)
    if isinstance(network, n.Hypercube) and full:
        return int(network.dimension)
    if isinstance(network, n.FatTree) and full and (network.tree() or ((1,),))[0][-1] > 1:
        return 2 * len(network.shape)
    if isinstance(network, n.Star) and ends > 1:
        return 2
    return 1 if isinstance(network, n.Full) and ends > 1 else None


def taper(cluster: Cluster, name: str) -> float:
    """See `Cluster.taper`."""
    network, graph = cluster.networks[name], cluster.graph(name)
    if isinstance(network, n.Dragonfly):
        per_group = network.sizes[0] * int(network.endpoints_per_switch) * _host_rate(graph)
        return group_bandwidth(cluster, name) / per_group
    if isinstance(network, n.FatTree):
        injected = network.offers * _host_rate(graph)
        return min([1.0, *(capacity / injected for capacity in _levels(network, graph))])
    if isinstance(network, n.Rail) and network.spines:
        leaves = int(np.count_nonzero(graph.kind == 1)) - int(network.spines)
        up = float(graph.rate[graph.link_kind == GLOBAL].sum())
        return min(1.0, up / (leaves * network.leaf_down * _host_rate(graph)))
    half = len(graph.endpoints) // 2
    return bisection(cluster, name) / (half * _host_rate(graph) * graph.stripes) if half else 1.0


def group_bandwidth(cluster: Cluster, name: str) -> float:
    """Bytes/s in one direction out of one dragonfly group."""
    network = _as_dragonfly(cluster, name)
    return float(network.links_between_groups * (network.groups - 1)) * _rate(cluster.graph(name), name)


def global_bandwidth(cluster: Cluster, name: str) -> float:
    """Bytes/s in one direction of all links between dragonfly groups."""
    network = _as_dragonfly(cluster, name)
    return group_bandwidth(cluster, name) * int(network.groups) / 2


def _as_dragonfly(cluster: Cluster, name: str) -> n.Dragonfly:
    network = cluster.networks[name]
    if not isinstance(network, n.Dragonfly):
        raise InputError(f"a {network.topology} has no groups; expected a dragonfly", where=f"network.{name}")
    return network


def _rate(graph: Graph, name: str) -> float:
    """Bytes/s of a link between switches, or of any link if there is no other."""
    inner = graph.rate[graph.link_kind != HOST]
    rate = float(inner[0]) if len(inner) else _host_rate(graph)
    if math.isnan(rate):
        raise InputError("rate: unknown, so the bandwidth is unknown too", where=f"network.{name}")
    return rate


def _host_rate(graph: Graph) -> float:
    hosts = graph.rate[graph.link_kind == HOST]
    return float(hosts[0]) if len(hosts) else float(graph.rate[0])


def _cut_off(graph: Graph) -> float:
    """Bytes/s when the slower half of the endpoints is cut off at its own links."""
    hosts = np.sort(graph.rate[graph.link_kind == HOST])
    if len(hosts):
        return float(hosts[: len(hosts) // 2].sum())
    degree = np.bincount(np.concatenate([graph.u, graph.v]), np.concatenate([graph.rate, graph.rate]), graph.vertices)
    return float(np.sort(degree[graph.endpoints])[: len(graph.endpoints) // 2].sum())


def _odd_part(ends: int, island: int) -> int:
    """The endpoints to cut off when disconnected islands of `island` endpoints are divided between two halves."""
    islands = -(-ends // island)
    return 0 if islands % 2 == 0 and ends % island == 0 else min(ends, island) // 2


@cache
def _grid_cut(dims: tuple[int, ...], wraps: bool) -> int:
    """The links across the middle of a grid: slabs along the best side, where the middle slab of an odd side is cut in turn."""
    cuts = []
    for i, size in enumerate(dims):
        if size > 1:
            rest = (*dims[:i], *dims[i + 1 :])
            across = math.prod(rest) * (2 if wraps and size > 2 else 1)
            cuts.append(across + (_grid_cut(rest, wraps) if size % 2 else 0))
    return min(cuts, default=0)


def _levels(network: n.FatTree, graph: Graph) -> list[float]:
    """Bytes/s of all links above each level but the last."""
    shape, found, at = network.shape, [], int(np.count_nonzero(graph.link_kind == HOST))
    for level in shape[:-1]:
        links = level.switches * level.up
        found.append(float(graph.rate[at]) * links)
        at += links
    return found


def _dragonfly_halves(network: n.Dragonfly, graph: Graph) -> list[np.ndarray]:
    """The sides (0 or 1) of all vertices, for each candidate halving."""
    sizes = network.sizes
    groups, first = len(sizes), np.concatenate([[0], np.cumsum(sizes)])
    switches = int(first[-1])
    group = np.repeat(np.arange(groups), sizes)
    rank = np.arange(switches) - first[:-1][group]
    low = rank < np.asarray(sizes)[group] // 2
    halves = [np.where(low, 0, 1)]
    if groups > 1:
        by_group = (np.arange(switches) >= switches // 2).astype(np.int64)
        halves.append(by_group)
        middle = groups // 2
        if groups % 2:
            halves += [np.where(group == middle, 1 - by_group, by_group)]
            for split in range(groups) if switches <= _MOST_TRIED else (0, middle, groups - 1):
                order = [g for g in range(groups) if g != split]
                side_of = np.full(groups, -1)
                side_of[order[: groups // 2]], side_of[order[groups // 2 :]] = 0, 1
                halves += [np.where(group == split, inner, side_of[group]) for inner in (np.where(low, 0, 1), np.where(low, 1, 0))]
    ends = len(graph.endpoints)
    leaf = graph.attachment[0] - ends
    if switches <= _MOST_SWAPPED:
        between: Any = np.zeros((switches, switches))
        inner = graph.link_kind != HOST
        np.add.at(between, (graph.u[inner] - ends, graph.v[inner] - ends), graph.rate[inner])
        between += between.T
        if switches > _MOST_TRIED:
            halves = [min(halves, key=lambda side: float(between[np.ix_(side == 0, side == 1)].sum()))]
        halves = [_swapped(between, side) for side in halves]
    return [np.concatenate([_balanced(side[leaf]), side]) for side in halves]


def _swapped(between: np.ndarray, side: np.ndarray) -> np.ndarray:
    """`side` improved by swapping pairs of switches (Kernighan–Lin; for large networks only swaps that gain at once)."""
    deep = len(side) <= _MOST_TRIED
    while True:
        trial, best, gain, total, free = side.copy(), side, 0.0, 0.0, np.ones(len(side), bool)
        while True:
            across = trial[:, None] != trial
            outward = np.where(across, between, -between).sum(axis=1)
            zero, one = np.flatnonzero((trial == 0) & free), np.flatnonzero((trial == 1) & free)
            if not len(zero) or not len(one):
                break
            gains = outward[zero][:, None] + outward[one] - 2 * between[np.ix_(zero, one)]
            i, j = np.unravel_index(int(gains.argmax()), gains.shape)
            total += float(gains[i, j])
            if not deep and gains[i, j] <= 0:
                break
            trial[zero[i]], trial[one[j]] = 1, 0
            free[zero[i]] = free[one[j]] = False
            if total > gain * (1 + 1e-12):
                best, gain = trial.copy(), total
        if best is side:
            return side
        side = best


def _balanced(side: np.ndarray) -> np.ndarray:
    """The sides of the endpoints, with as few as possible moved so that the halves are equal."""
    side, extra = side.copy(), int(side.sum()) - len(side) // 2
    if extra > 0:
        side[np.flatnonzero(side == 1)[:extra]] = 0
    elif extra < -1 or (extra < 0 and len(side) % 2 == 0):
        side[np.flatnonzero(side == 0)[: -extra - (len(side) % 2)]] = 1
    return side


def _cut(graph: Graph, side: np.ndarray) -> float:
    return float(graph.rate[side[graph.u] != side[graph.v]].sum())


def _spectral(graph: Graph) -> float:
    """λ₂ · endpoints / 4, with λ₂ of the Laplacian seen from the endpoints, which no halving can undercut."""
    if graph.vertices > _MOST_SPECTRAL:
        raise InputError(
            f"{graph.vertices:,} vertices; a bound can be computed for at most {_MOST_SPECTRAL:,}", where=f"network.{graph.name}"
        )
    import scipy.linalg

    if np.isnan(graph.rate).any():
        raise InputError("rate: unknown for some edges, so the bandwidth is unknown too", where=f"network.{graph.name}")
    matrix: Any = np.zeros((graph.vertices, graph.vertices))
    np.add.at(matrix, (graph.u, graph.v), -graph.rate)
    matrix += matrix.T
    matrix[np.diag_indices_from(matrix)] = -matrix.sum(axis=1)
    inner = np.setdiff1d(np.arange(graph.vertices), graph.endpoints)
    seen = matrix[np.ix_(graph.endpoints, graph.endpoints)]
    if len(inner):
        across = matrix[np.ix_(graph.endpoints, inner)]
        # A switch that no endpoint reaches makes the inner block singular; the pseudo-inverse leaves it out.
        seen = seen - across @ scipy.linalg.pinvh(matrix[np.ix_(inner, inner)]) @ across.T
    values = scipy.linalg.eigvalsh(seen, subset_by_index=[1, 1])
    return max(0.0, float(values[0]) * len(graph.endpoints) / 4)
