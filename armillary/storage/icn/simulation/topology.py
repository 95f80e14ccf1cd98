"""A network of caching nodes, with links, receivers, origins behind transit links, and shortest paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from armillary.errors import InputError, unknown

from ..pricing.prices import GB, Prices

#: Seconds per kilometre of fibre, and the length of fibre over the great-circle distance.
FIBRE, DETOUR = 5e-6, 1.3
_SPEED = 1.25e9


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes 0…n−1 that may cache, and origins n…n+o−1 that hold everything, each behind one link of its own.

    Links are undirected: `ends` int32[links, 2], `latency` seconds one way, `bandwidth` bytes/s, `price` $/B (NaN means the usual one).
    """

    names: tuple[str, ...]
    ends: np.ndarray
    latency: np.ndarray
    bandwidth: np.ndarray
    price: np.ndarray
    #: Nodes at which requests arrive, and the nodes behind which origins lie.
    receivers: np.ndarray
    origins: np.ndarray
    name: str = ""

    def __post_init__(self) -> None:
        n = len(self.names)
        if not n:
            raise InputError("topology: found no nodes; expected at least one")
        for what, values in (("latency", self.latency), ("bandwidth", self.bandwidth)):
            bad = np.flatnonzero(~np.isfinite(values) | (values < 0) | ((values == 0) & (what == "bandwidth")))
            if len(bad):
                raise InputError(f"{self._link(bad[0])}: found the {what} {values[bad[0]]:g}; expected a positive number")
        bad = np.flatnonzero(self.price < 0)
        if len(bad):
            raise InputError(f"{self._link(bad[0])}: found the price {self.price[bad[0]] * GB:g} per GB; expected none below 0")
        if not len(self.receivers) or not len(self.origins):
            raise InputError("topology: found no receivers or no origins; expected at least one of each")
        graph = csr_array((np.ones(len(self.ends)), (self.ends[:, 0], self.ends[:, 1])), shape=(n, n))
        parts, part = connected_components(graph, directed=False)
        if parts > 1:
            lost = self.names[int(np.flatnonzero(part != part[self.origins[0]])[0])]
            raise InputError(f"topology: found no path from the node {lost} to an origin; expected a connected network")

    def _link(self, i: int) -> str:
        return f"link {self.names[self.ends[i, 0]]}–{self.names[self.ends[i, 1]]}"

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def betweenness(self) -> np.ndarray:
        """float64[n]: how many shortest paths from receivers to origins go through each node."""
        routes = self.routes(Prices())
        count = np.zeros(len(self))
        for origin in range(len(self), len(self) + len(self.origins)):
            for receiver in self.receivers:
                at = int(receiver)
                while at != origin:
                    count[at] += 1
                    at = int(routes.toward[at, origin])
        return count

    def routes(self, prices: Prices) -> Routes:
        """The shortest path from every vertex to every other, and the price of each link."""
        n, o = len(self), len(self.origins)
        size = n + o
        latency = np.full((size, size), np.inf)
        bandwidth, price = np.zeros((size, size)), np.zeros((size, size))
        own = np.where(np.isnan(self.price), prices.internal / GB, self.price)
        for (a, b), far, wide, paid in zip(self.ends.tolist(), self.latency, self.bandwidth, own):
            if far < latency[a, b]:
                latency[a, b] = latency[b, a] = far
                bandwidth[a, b] = bandwidth[b, a] = wide
                price[a, b] = price[b, a] = paid
        for i, node in enumerate(self.origins):
            a, b = int(node), n + i
            latency[a, b] = latency[b, a] = prices.transit_latency
            bandwidth[a, b] = bandwidth[b, a] = prices.transit_bandwidth
            price[a, b] = price[b, a] = prices.transit / GB
        there = np.isfinite(latency)
        # SciPy takes the weight 0 for no edge, but a link of zero latency is still a link.
        weights = csr_array((latency[there] + 1e-12, np.nonzero(there)), shape=(size, size))
        _, before = shortest_path(weights, directed=False, return_predecessors=True)
        transit = np.zeros((size, size), np.bool_)
        transit[n:], transit[:, n:] = True, True
        return Routes(before.T.astype(np.int32).copy(), latency, bandwidth, price, transit)


@dataclass(frozen=True, eq=False)
class Routes:
    """`toward[a, b]` is the next vertex on the way from a to b; the rest are tables of links."""

    toward: np.ndarray
    latency: np.ndarray
    bandwidth: np.ndarray
    price: np.ndarray
    transit: np.ndarray


def topology(
    links: Iterable[Sequence[Any]], receivers: Sequence[str] | None = None, origins: Sequence[str] | None = None, name: str = "",
    nodes: Iterable[str] = (),
) -> Topology:  # fmt: skip
    """A topology from (a, b, latency s, bandwidth B/s, price $/B) rows, the last two optional.

    By default, receivers are the nodes of degree at most 2, or all nodes if there are none, and the origin is the node of highest degree.
    `nodes` may name all nodes, so that one without a link is noticed.
    """
    rows = [tuple(row) for row in links]
    names = list(dict.fromkeys([*(str(end) for row in rows for end in row[:2]), *nodes]))
    index = {node: i for i, node in enumerate(names)}
    ends = np.array([[index[str(row[0])], index[str(row[1])]] for row in rows], np.int32).reshape(-1, 2)
    degree = np.bincount(ends.ravel(), minlength=len(names)) if len(rows) else np.zeros(len(names), np.int64)

    def chosen(given: Sequence[str] | None, default: np.ndarray) -> np.ndarray:
        if given is None:
            return default.astype(np.int32)
        for node in given:
            if node not in index:
                raise unknown("node", node, index, where="topology")
        return np.array([index[node] for node in given], np.int32)

    edge = np.flatnonzero(degree <= 2)
    return Topology(
        tuple(names),
        ends,
        np.array([row[2] for row in rows], np.float64),
        np.array([row[3] if len(row) > 3 and row[3] is not None else _SPEED for row in rows], np.float64),
        np.array([row[4] if len(row) > 4 and row[4] is not None else np.nan for row in rows], np.float64),
        chosen(receivers, edge if len(edge) else np.arange(len(names))),
        chosen(origins, np.array([int(degree.argmax())]) if len(names) else np.empty(0)),
        name,
    )


def from_networkx(graph: Any, receivers: Sequence[str] | None = None, origins: Sequence[str] | None = None) -> Topology:
    """A topology from a NetworkX graph, as the Internet Topology Zoo writes them.

    The latency of an edge is its `latency` in seconds, or follows from the `Longitude` and `Latitude` of its ends, or is 2 ms. Its
    bandwidth is `LinkSpeedRaw` (bits/s) or `bandwidth` (bytes/s), and its price is `price` ($/B).
    """
    label = {node: str(data.get("label", node)) for node, data in graph.nodes(data=True)}
    if len(set(label.values())) < len(label):
        label = {node: f"{text}#{node}" for node, text in label.items()}
    rows = []
    for a, b, data in graph.edges(data=True):
        if a == b:
            continue
        speed = float(data["LinkSpeedRaw"]) / 8 if data.get("LinkSpeedRaw") else data.get("bandwidth")
        latency = data.get("latency", _flight(graph.nodes[a], graph.nodes[b]))
        rows.append((label[a], label[b], float(latency), speed, data.get("price")))
    return topology(rows, receivers, origins, str(graph.graph.get("Network", "")), label.values())


def _flight(a: Any, b: Any) -> float:
    """Seconds that light takes in fibre between two places, or 2 ms where they are not known."""
    try:
        (x, y), (u, v) = ((np.radians(float(p["Longitude"])), np.radians(float(p["Latitude"]))) for p in (a, b))
    except (KeyError, TypeError, ValueError):
        return 2e-3
    cosine = np.sin(y) * np.sin(v) + np.cos(y) * np.cos(v) * np.cos(x - u)
    return float(6371.0 * np.arccos(np.clip(cosine, -1, 1)) * FIBRE * DETOUR)


_ABILENE = (
    "Seattle Sunnyvale 1133, Seattle Denver 1645, Sunnyvale LosAngeles 507, Sunnyvale Denver 1504, LosAngeles Houston 2207, "
    "Denver KansasCity 898, KansasCity Houston 1037, KansasCity Indianapolis 733, Houston Atlanta 1129, Indianapolis Chicago 265, "
    "Indianapolis Atlanta 686, Chicago NewYork 1146, Atlanta Washington 872, NewYork Washington 328"
)
BUILT_IN = ("line", "abilene", "tree", "grid", "isp", "web")


def built_in(name: str, rng: np.random.Generator | None = None) -> Topology:
    """A named topology.

    `line` has three nodes, `abilene` uses great-circle distances, `tree` is binary of depth 6, `grid` is 5×5, `isp` has two tiers and 79
    nodes, and `web` has 1,000 nodes that prefer well-connected ones (Barabási–Albert).
    """
    ms, gbps = 1e-3, 1.25e8
    if name == "line":
        return topology([("edge", "middle", 2 * ms), ("middle", "core", 2 * ms)], ["edge"], ["core"], name)
    if name == "abilene":
        links = [row.split() for row in _ABILENE.split(", ")]
        rows = [(a, b, float(km) * FIBRE * DETOUR, 10 * gbps) for a, b, km in links]
        every = list(dict.fromkeys(end for row in rows for end in row[:2]))
        return topology(rows, every, ["KansasCity", "NewYork"], name)
    if name == "tree":
        rows = [(f"n{(i - 1) // 2}", f"n{i}", 2 * ms, (10 if i < 15 else 1) * gbps) for i in range(1, 127)]
        return topology(rows, [f"n{i}" for i in range(63, 127)], ["n0"], name)
    if name == "grid":
        cells = [(x, y) for x in range(5) for y in range(5)]
        rows = [
            (f"{x},{y}", f"{x + dx},{y + dy}", 3 * ms, 10 * gbps)
            for x, y in cells
            for dx, dy in ((1, 0), (0, 1))
            if max(x + dx, y + dy) < 5
        ]
        return topology(rows, [f"{x},{y}" for x, y in cells if (x, y) != (2, 2)], ["2,2"], name)
    if name == "isp":
        return _isp()
    if name == "web":
        return _web(1000, rng or np.random.default_rng(0))
    raise unknown("topology", name, BUILT_IN)


def _isp() -> Topology:
    """A topology of 8 cores in a ring with chords, 24 metro nodes with two uplinks each, 47 access nodes."""
    ms, gbps = 1e-3, 1.25e8
    rows: list[tuple[Any, ...]] = [(f"core{i}", f"core{(i + 1) % 8}", 4 * ms, 100 * gbps) for i in range(8)]
    rows += [(f"core{i}", f"core{i + 4}", 7 * ms, 100 * gbps) for i in range(4)]
    for i in range(24):
        rows += [(f"metro{i}", f"core{i // 3}", 2 * ms, 40 * gbps), (f"metro{i}", f"core{(i // 3 + 1) % 8}", 5 * ms, 40 * gbps)]
    rows += [(f"access{i}", f"metro{i % 24}", 1 * ms, 10 * gbps) for i in range(47)]
    return topology(rows, [f"access{i}" for i in range(47)], ["core0", "core4"], "isp")


def _web(n: int, rng: np.random.Generator, links: int = 2) -> Topology:
    ends: list[int] = [0, 1]
    rows = [("n0", "n1", 1e-3, 10 * 1.25e8)]
    for node in range(2, n):
        for other in {ends[int(rng.integers(len(ends)))] for _ in range(links)}:
            rows.append((f"n{node}", f"n{other}", float(rng.uniform(0.5e-3, 8e-3)), 10 * 1.25e8))
            ends += [node, other]
    return topology(rows, None, ["n0", "n1"], "web")
