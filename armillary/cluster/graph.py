"""A network as arrays of vertices, edges, and the edges of each vertex, without an object per vertex."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    import networkx

ENDPOINT, SWITCH = 0, 1
HOST, LOCAL, GLOBAL = 0, 1, 2
KINDS = ("endpoint", "switch")
LINK_KINDS = ("host", "local", "global")
ALGORITHMS = ("minimal", "ecmp", "valiant")


@dataclass(frozen=True)
class Adjacency:
    """The edges of every vertex in both directions (CSR): entries `start[x]` to `start[x + 1]` are those of vertex x, by edge number."""

    start: np.ndarray
    neighbour: np.ndarray
    #: The directed link of the entry, which leaves x.
    link: np.ndarray


@dataclass(frozen=True, eq=False)
class Graph:
    """The vertices and edges of one network.

    Vertices: `kind` (0 endpoint, 1 switch) and `group` (dragonfly group, pod, rail…; −1 for none). Edges are undirected: `u`,
    `v`, `rate` bytes/s per direction, `latency` seconds (NaN where unknown), `link_kind` (0 to an endpoint, 1 local, 2 global). A
    directed link is 2 · edge from u to v and 2 · edge + 1 from v to u. `endpoints[i]` is the vertex of endpoint i. The seconds of
    a route are those of its edges plus twice `endpoint_latency`.
    """

    name: str
    kind: np.ndarray
    group: np.ndarray
    endpoints: np.ndarray
    u: np.ndarray
    v: np.ndarray
    rate: np.ndarray
    latency: np.ndarray
    link_kind: np.ndarray
    #: Seconds in each NIC, if the edges do not include them already (in networks without switches).
    endpoint_latency: float = 0.0
    #: The number of parallel paths over which a transfer is striped (in NVLink domains).
    stripes: int = 1
    #: The expected most hops of a minimal route, which is only a first guess for the width of `routes`.
    reach: int = 8
    #: What an edge adds to the length of a route; global links add more, so that a minimal route uses one of them.
    weight: np.ndarray = field(default_factory=lambda: np.ones(0, np.int32))

    @property
    def vertices(self) -> int:
        """The number of vertices (endpoints and switches)."""
        return len(self.kind)

    @property
    def edges(self) -> int:
        """The number of undirected edges; parallel edges count separately."""
        return len(self.u)

    @property
    def switches(self) -> int:
        """The number of switches."""
        return int(np.count_nonzero(self.kind == SWITCH))

    @cached_property
    def adjacency(self) -> Adjacency:
        """The edges by vertex, in both directions."""
        return _adjacency(self.vertices, self.u, self.v, np.arange(self.edges))

    @cached_property
    def core(self) -> Adjacency:
        """The same without edges to endpoints that have only one link; routes are searched in this graph."""
        inner = np.flatnonzero(self.link_kind != HOST)
        return _adjacency(self.vertices, self.u[inner], self.v[inner], inner)

    @cached_property
    def core_weight(self) -> np.ndarray:
        """The weight of each entry of `core`."""
        return self.weight[self.core.link >> 1].astype(np.int32)

    @cached_property
    def attachment(self) -> tuple[np.ndarray, np.ndarray]:
        """For each endpoint, the vertex where its routes begin and the directed link to it (−1 if it is the endpoint itself)."""
        root, link = self.endpoints.copy(), np.full(len(self.endpoints), -1, np.int32)
        host = np.flatnonzero(self.link_kind == HOST)
        if len(host):
            up = np.full(self.vertices, -1, np.int64)
            u_is_host = self.kind[self.u[host]] == ENDPOINT
            low = np.where(u_is_host, self.u[host], self.v[host])
            high = np.where(u_is_host, self.v[host], self.u[host])
            up[low] = 2 * host + ~u_is_host
            parent = np.full(self.vertices, -1, np.int32)
            parent[low] = high
            hanging = up[self.endpoints] >= 0
            root[hanging] = parent[self.endpoints[hanging]]
            link[hanging] = up[self.endpoints[hanging]]
        return root, link

    def routes(self, sources: np.ndarray, targets: np.ndarray, algorithm: str = "minimal", seed: int = 0) -> np.ndarray:
        """The directed links from each source endpoint to its target, with −1 after the last: int32 [routes, longest].

        `minimal` takes the shortest route, with ties broken by edge number. `ecmp` takes a random shortest route, hop by hop. `valiant`
        takes a minimal route to a random switch and another from there. The same seed gives the same routes. Endpoints that cannot reach
        each other are an error.
        """
        from armillary.cluster.routes import routes

        if algorithm not in ALGORITHMS:
            raise unknown("routing algorithm", algorithm, ALGORITHMS)
        a, b = (self._checked(x, what) for x, what in ((sources, "source"), (targets, "target")))
        if a.shape != b.shape:
            raise InputError(f"{len(a)} sources and {len(b)} targets; expected the same number", where=self.name)
        return routes(self, a, b, algorithm, seed)

    def _checked(self, endpoints: np.ndarray, what: str) -> np.ndarray:
        found = np.atleast_1d(np.asarray(endpoints))
        if found.size == 0:
            return found.astype(np.int64)
        if found.ndim != 1 or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= len(self.endpoints):
            raise InputError(f"{what}s: expected endpoint numbers from 0 to {len(self.endpoints) - 1}", where=self.name)
        return found.astype(np.int64)

    def seconds(self, routes: np.ndarray) -> np.ndarray:
        """The latency of each route in seconds, including both NICs; 0 for a route without links."""
        used = routes >= 0
        total = np.where(used, self.latency[np.where(used, routes >> 1, 0)], 0.0).sum(axis=1)
        return total + np.where(used.any(axis=1), 2 * self.endpoint_latency, 0.0)

    def bottleneck(self, routes: np.ndarray) -> np.ndarray:
        """Bytes/s of the slowest link of each route, times the stripes of the network; infinite for a route without links."""
        used = routes >= 0
        return np.where(used, self.rate[np.where(used, routes >> 1, 0)], np.inf).min(axis=1, initial=np.inf) * self.stripes

    def to_networkx(self) -> networkx.MultiGraph:
        """The network as a networkx multigraph whose edge keys are edge numbers."""
        import networkx

        graph = networkx.MultiGraph(name=self.name)
        graph.add_nodes_from((i, {"kind": KINDS[k], "group": int(g)}) for i, (k, g) in enumerate(zip(self.kind, self.group, strict=True)))
        for e in range(self.edges):
            graph.add_edge(
                int(self.u[e]),
                int(self.v[e]),
                key=e,
                rate=float(self.rate[e]),
                latency=float(self.latency[e]),
                kind=LINK_KINDS[self.link_kind[e]],
            )
        return graph


def _adjacency(vertices: int, u: np.ndarray, v: np.ndarray, edge: np.ndarray) -> Adjacency:
    ends = np.concatenate([u, v])
    other = np.concatenate([v, u])
    link = np.concatenate([2 * edge, 2 * edge + 1])
    order = np.lexsort((link, ends))
    start = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=vertices), out=start[1:])
    return Adjacency(start, other[order].astype(np.int32), link[order].astype(np.int32))
