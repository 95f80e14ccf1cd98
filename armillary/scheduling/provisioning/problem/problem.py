"""An edge network, the services that can run on its nodes, and the requests that travel through chains of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.kernels import loop

#: The share of a node's cores that a plan may load.
MOST_LOAD = 0.8
MOST_NODES, MOST_SERVICES, MOST_USERS, MOST_CHAIN = 1000, 1000, 100_000, 32
#: Users × nodes, because the distance of every user to every node is kept.
MOST_PAIRS = 1 << 23
_BITS_PER_MB = 8.0


@dataclass(frozen=True, eq=False)
class Problem:
    """Who asks for what from where, and what the nodes can hold.

    With K nodes, M services and U users: an instance of service m costs `price[m]`, takes `space[m]` of a node's `storage`, and a visit
    occupies `cpu[m]` cores for `ms[m]` milliseconds. User u sends `rate[u]` requests per second, each with `mb[u]` megabytes, through the
    services `chain[chain_start[u]:chain_start[u + 1]]`, and expects the answer within `deadline[u]` milliseconds. `origin` (U × K) holds
    the share of a user's requests that enters at each node. `distance` (K × K) is in milliseconds per megabyte over the fastest path.
    """

    nodes: tuple[str, ...]
    latitude: np.ndarray
    longitude: np.ndarray
    cores: np.ndarray
    storage: np.ndarray
    link_a: np.ndarray
    link_b: np.ndarray
    link_mbps: np.ndarray
    services: tuple[str, ...]
    price: np.ndarray
    cpu: np.ndarray
    space: np.ndarray
    ms: np.ndarray
    users: tuple[str, ...]
    chain_start: np.ndarray
    chain: np.ndarray
    mb: np.ndarray
    rate: np.ndarray
    deadline: np.ndarray
    origin: np.ndarray
    distance: np.ndarray
    #: The weight of cost against latency in the objective.
    alpha: float = 0.5

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of users, nodes and services."""
        return len(self.users), len(self.nodes), len(self.services)

    @functools.cached_property
    def length(self) -> np.ndarray:
        """The number of services in each user's chain."""
        return np.diff(self.chain_start)

    @functools.cached_property
    def weight(self) -> np.ndarray:
        """The share of all requests that each user sends."""
        return self.rate / self.rate.sum()

    @functools.cached_property
    def processing(self) -> np.ndarray:
        """Milliseconds that each user's chain takes on idle nodes."""
        return np.add.reduceat(self.ms[self.chain], self.chain_start[:-1])

    @functools.cached_property
    def access(self) -> np.ndarray:
        """Expected milliseconds (U × K) from where a user's request enters to each node."""
        return _access(self.origin, self.distance, self.mb)

    @functools.cached_property
    def need(self) -> np.ndarray:
        """Cores that each position of each chain loads on its node, laid out as `chain`."""
        return np.repeat(self.rate, self.length) * (self.cpu * self.ms / 1e3)[self.chain]

    @functools.cached_property
    def room(self) -> np.ndarray:
        """Cores of each node that a plan may load."""
        return MOST_LOAD * self.cores

    @functools.cached_property
    def fastest(self) -> np.ndarray:
        """Milliseconds below which no plan can answer each user: processing, and the way to the best single node."""
        return self.processing + self.access.min(1)

    @functools.cached_property
    def users_of(self) -> tuple[np.ndarray, ...]:
        """For each service, the users whose chain contains it."""
        owner = np.repeat(np.arange(len(self.users)), self.length)
        order = np.argsort(self.chain, kind="stable")
        ends = np.searchsorted(self.chain[order], np.arange(len(self.services) + 1))
        return tuple(owner[order[ends[m] : ends[m + 1]]] for m in range(len(self.services)))

    @functools.cached_property
    def place_of(self) -> tuple[np.ndarray, ...]:
        """For each service, its position in the chains of `users_of`."""
        place = np.arange(len(self.chain)) - np.repeat(self.chain_start[:-1], self.length)
        order = np.argsort(self.chain, kind="stable")
        ends = np.searchsorted(self.chain[order], np.arange(len(self.services) + 1))
        return tuple(place[order[ends[m] : ends[m + 1]]] for m in range(len(self.services)))

    @functools.cached_property
    def used(self) -> np.ndarray:
        """The services that some chain contains, which are the ones that need an instance."""
        return np.unique(self.chain)

    @functools.cached_property
    def neighbours(self) -> tuple[np.ndarray, ...]:
        """The nodes that share a link with each node."""
        near: list[set[int]] = [set() for _ in self.nodes]
        for a, b in zip(self.link_a.tolist(), self.link_b.tolist()):
            near[a].add(b)
            near[b].add(a)
        return tuple(np.array(sorted(found), np.int64) for found in near)

    @functools.cached_property
    def reference(self) -> Any:
        """Joint-greedy's plan at α = 0.5 as a state, and its (cost, mean latency in ms)."""
        from armillary.scheduling.provisioning.joint_greedy import reference

        return reference(self)

    @property
    def scale(self) -> tuple[float, float]:
        """Cost and mean latency (ms) of joint-greedy's plan at α = 0.5, by which the objective divides, whatever this problem's α is."""
        found: tuple[float, float] = self.reference[1]
        return found

    def objective(self, cost: float, latency_ms: float) -> float:
        """α·cost/cost₀ + (1 − α)·latency/latency₀."""
        cost_0, latency_0 = self.scale
        return self.alpha * cost / cost_0 + (1 - self.alpha) * latency_ms / latency_0

    @functools.cached_property
    def simple_bound(self) -> float:
        """An objective that no plan can fall below: one instance of each service that is used, and every user at its fastest."""
        return self.objective(float(self.price[self.used].sum()), float((self.weight * self.fastest).sum()))

    def with_alpha(self, alpha: float | None) -> Problem:
        """The same problem with another weight of cost; itself if `alpha` is None or its own."""
        if alpha is None or alpha == self.alpha:
            return self
        twin = replace(self, alpha=alpha)
        for name, value in self.__dict__.items():
            if name not in ("alpha", "simple_bound"):
                twin.__dict__.setdefault(name, value)
        return twin

    def to_mps(self, path: str | os.PathLike[str]) -> None:
        """Writes the integer program as a free MPS file, which every solver reads."""
        from .ilp import integer_program

        integer_program(self).write_mps(path)


def problem(
    nodes: Sequence[Mapping[str, Any]],
    links: Sequence[Mapping[str, Any]],
    services: Sequence[Mapping[str, Any]],
    requests: Sequence[Mapping[str, Any]],
    *,
    alpha: float = 0.5,
    where: str | None = None,
) -> Problem:
    """A problem from plain records, checked.

    nodes: `id, lat, lon, capacity` (cores) and `storage`. links: `a, b, mbps`. services: `id, price, cpu` (cores of a visit), `storage` and
    `ms`. requests: `user, chain, mb`, the `origin` as {node: share}, and optionally `rate` per second (1) and `deadline_ms` (none).
    """
    index = _index([str(node["id"]) for node in nodes], "node", where)
    known = _index([str(service["id"]) for service in services], "service", where)
    users = _index([str(request["user"]) for request in requests], "user", where)
    for what, found, most in (
        ("nodes", len(index), MOST_NODES),
        ("services", len(known), MOST_SERVICES),
        ("users", len(users), MOST_USERS),
        ("users × nodes", len(users) * len(index), MOST_PAIRS),
    ):
        if not 1 <= found <= most:
            raise InputError(f"found {found:,} {what}; expected 1 to {most:,}", where=where)
    chains = []
    for request in requests:
        names = list(request["chain"])
        if not 1 <= len(names) <= MOST_CHAIN:
            raise InputError(f"found a chain of {len(names)} services for user {request['user']}; expected 1 to {MOST_CHAIN}", where=where)
        for name in names:
            if str(name) not in known:
                raise InputError(
                    f'found the service "{one_line(str(name), 40)}" in the chain of user {request["user"]}; expected one of the services',
                    where=where,
                )
        if len(set(names)) < len(names):
            raise InputError(f"found a service twice in the chain of user {request['user']}; expected each service once", where=where)
        chains.append([known[str(name)] for name in names])
    origin = np.zeros((len(users), len(index)))
    for row, request in zip(origin, requests):
        for name, share in request["origin"].items():
            if str(name) not in index:
                raise InputError(
                    f'found the origin "{one_line(str(name), 40)}" of user {request["user"]}; expected one of the nodes', where=where
                )
            row[index[str(name)]] = share
    ends = [[_end(link[side], index, where) for link in links] for side in ("a", "b")]
    made = Problem(
        nodes=tuple(index), latitude=_column(nodes, "lat"), longitude=_column(nodes, "lon"), cores=_column(nodes, "capacity"),
        storage=_column(nodes, "storage"), link_a=np.array(ends[0], np.int64), link_b=np.array(ends[1], np.int64),
        link_mbps=_column(links, "mbps"), services=tuple(known), price=_column(services, "price"), cpu=_column(services, "cpu"),
        space=_column(services, "storage"), ms=_column(services, "ms"), users=tuple(users),
        chain_start=np.cumsum([0, *map(len, chains)]), chain=np.array([m for chain in chains for m in chain], np.int64),
        mb=_column(requests, "mb"), rate=_column(requests, "rate", 1.0), deadline=_column(requests, "deadline_ms", np.inf), origin=origin,
        distance=np.zeros((len(index), len(index))), alpha=alpha,
    )  # fmt: skip
    return checked(replace(made, distance=distances(len(index), made.link_a, made.link_b, made.link_mbps)), where)


def checked(p: Problem, where: str | None = None) -> Problem:
    """The problem itself if every number can be used; an InputError that names the first one that cannot otherwise."""
    for what, names, values, least, above in (
        ("capacity", p.nodes, p.cores, None, 0.0), ("storage", p.nodes, p.storage, 0.0, None), ("price", p.services, p.price, 0.0, None),
        ("cpu", p.services, p.cpu, None, 0.0), ("storage", p.services, p.space, 0.0, None), ("ms", p.services, p.ms, None, 0.0),
        ("mb", p.users, p.mb, None, 0.0), ("rate", p.users, p.rate, None, 0.0),
    ):  # fmt: skip
        bad = ~np.isfinite(values) | (values > 1e12) | ((values <= above) if above is not None else (values < least))
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            wanted = "a number above 0" if above is not None else "a number of 0 or more"
            raise InputError(f"{what} of {one_line(names[at], 40)}: found {values[at]:g}; expected {wanted}, at most 1e12", where=where)
    if len(p.link_mbps) and not ((p.link_mbps > 1e-6) & (p.link_mbps < 1e12)).all():
        at = int(np.flatnonzero(~((p.link_mbps > 1e-6) & (p.link_mbps < 1e12)))[0])
        raise InputError(
            f"mbps of the link {p.nodes[p.link_a[at]]} to {p.nodes[p.link_b[at]]}: found {p.link_mbps[at]:g}; expected 1e-6 to 1e12",
            where=where,
        )
    if not (p.origin >= 0).all() or not np.allclose(p.origin.sum(1), 1.0, rtol=0, atol=1e-6):
        at = int(np.flatnonzero(~((p.origin >= 0).all(1) & (np.abs(p.origin.sum(1) - 1.0) <= 1e-6)))[0])
        raise InputError(f"origin of user {p.users[at]}: found shares that sum to {p.origin[at].sum():g}; expected 1", where=where)
    reached = np.isfinite(p.distance)
    for u in range(len(p.users)):
        entries = np.flatnonzero(p.origin[u])
        if not reached[np.ix_(entries, entries)].all():
            raise InputError(
                f"user {p.users[u]} enters at nodes that no path connects; expected a network in which its requests can travel", where=where
            )
    late = np.flatnonzero(p.deadline < p.fastest * (1 - 1e-9))
    if len(late):
        u = int(late[0])
        raise InputError(
            f"deadline of user {p.users[u]}: found {p.deadline[u]:g} ms; expected at least {p.fastest[u]:.6g} ms, because processing takes "
            f"{p.processing[u]:.6g} ms and the way to the best node {p.fastest[u] - p.processing[u]:.6g} ms",
            where=where,
        )
    load, room = float(p.need.sum()), float(p.room.sum())
    if load > room:
        raise InputError(
            f"the requests load {load:.6g} cores; expected at most {room:.6g}, which is {MOST_LOAD:g} of all nodes' cores", where=where
        )
    most = float(p.storage.max())
    for m in p.used.tolist():
        if p.space[m] > most:
            raise InputError(f"service {p.services[m]} takes {p.space[m]:g} of storage; the largest node has {most:g}", where=where)
    return p


def distances(nodes: int, a: np.ndarray, b: np.ndarray, mbps: np.ndarray) -> np.ndarray:
    """Milliseconds per megabyte (K × K) over the fastest paths, on which every link forwards a whole request; infinite without a path."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    cost = 1e3 * _BITS_PER_MB / np.maximum(mbps, 1e-300)
    # Of parallel links, the fastest counts; SciPy would add them.
    best: dict[tuple[int, int], float] = {}
    for i, j, c in zip(a.tolist(), b.tolist(), cost.tolist()):
        if i != j:
            key = (min(i, j), max(i, j))
            best[key] = min(c, best.get(key, np.inf))
    pairs = np.array(list(best), np.int64).reshape(-1, 2)
    graph = csr_array((np.array(list(best.values())), (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    found: np.ndarray = dijkstra(graph, directed=False)
    return np.minimum(found, found.T)


def _index(names: Sequence[str], what: str, where: str | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        if name in found:
            raise InputError(f'found the {what} "{one_line(name, 40)}" twice; expected each {what} once', where=where)
        found[name] = len(found)
    return found


def _end(name: object, index: Mapping[str, int], where: str | None) -> int:
    if str(name) not in index:
        raise InputError(f'found a link to "{one_line(str(name), 40)}"; expected one of the nodes', where=where)
    return index[str(name)]


def _column(records: Sequence[Mapping[str, Any]], name: str, default: float | None = None) -> np.ndarray:
    return np.array([record[name] if default is None else record.get(name, default) for record in records], np.float64)


@loop
def _access(origin, distance, mb):  # type: ignore[no-untyped-def]
    users, nodes = origin.shape
    out = np.zeros((users, nodes))
    for u in range(users):
        for o in range(nodes):
            share = origin[u, o]
            if share > 0.0:
                for k in range(nodes):
                    out[u, k] += mb[u] * share * distance[o, k]
    return out
