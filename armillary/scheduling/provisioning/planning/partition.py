"""SoCL's first two stages: groups of nodes that keep every deadline, and the instances that each group buys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.provisioning.problem.problem import Problem

from .state import State


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of one service: `group[k]` is the number of the group that node k belongs to, `centres` their first nodes."""

    radius: float
    centres: tuple[int, ...]
    group: np.ndarray


def demand(p: Problem) -> np.ndarray:
    """Expected megabytes (M × K) that enter each service from each node, per request of the whole.

    A first service is entered from its users' origins. A later one is entered from the nodes of the service before it, whose demand is
    spread over all nodes in proportion to 1/distance; a node is as far from itself as half the shortest link.
    """
    distance = p.distance
    shortest = distance[(distance > 0) & np.isfinite(distance)].min() if (distance > 0).any() else 1.0
    near = 1.0 / np.where(np.eye(len(p.nodes), dtype=bool), 0.5 * shortest, np.where(distance > 0, distance, 0.5 * shortest))
    near[~np.isfinite(distance)] = 0.0
    spread = near / near.sum(1, keepdims=True)
    return _demand(p.origin, p.weight * p.mb, p.chain_start, p.chain, spread, len(p.services))


@loop
def _demand(origin, megabytes, chain_start, chain, spread, services):  # type: ignore[no-untyped-def]
    users, nodes = origin.shape
    out = np.zeros((services, nodes))
    here, there = np.empty(nodes), np.empty(nodes)
    for u in range(users):
        here[:] = origin[u]
        for at in range(chain_start[u], chain_start[u + 1]):
            for k in range(nodes):
                out[chain[at], k] += megabytes[u] * here[k]
            if at + 1 < chain_start[u + 1]:
                there[:] = 0.0
                for j in range(nodes):
                    share = here[j]
                    for k in range(nodes):
                        there[k] += share * spread[j, k]
                here, there = there, here
    return out


def radius(p: Problem, m: int) -> float:
    """The largest distance (ms per MB) within which a service's groups keep every deadline.

    If each service of a chain is entered from a node of some group and runs in that group, each of its L links is at most 2ρ long. So the
    answer is there in time if the way to the user's best node, processing and 2ρ·L·data together do not exceed the deadline, for every
    user whose chain contains the service.
    """
    users = p.users_of[m]
    slack = np.maximum(0.0, p.deadline[users] - p.fastest[users])
    return float((slack / (2 * p.mb[users] * p.length[users])).min())


def cover(p: Problem, m: int, weight: np.ndarray) -> Groups:
    """Opens groups around the node with the most uncovered demand within the radius, until all nodes that are entered from are covered.

    A node joins the group whose centre is nearest; nodes that no request enters from do so too.
    """
    reach = radius(p, m)
    inside = p.distance <= reach * (1 + 1e-12) + 1e-12
    entered = weight > 0
    users = p.users_of[m]
    entered[p.access[users[p.place_of[m] == 0]].argmin(1)] = True
    open_: list[int] = []
    uncovered = entered.copy()
    while uncovered.any():
        within = (inside * np.where(uncovered, weight, 0.0)[None, :]).sum(1)
        covers = (inside & uncovered[None, :]).any(1)
        centre = int(np.argmax(np.where(covers, within, -1.0)))
        open_.append(centre)
        uncovered &= ~inside[centre]
    to = p.distance[:, open_]
    return Groups(reach, tuple(open_), to.argmin(1))


def whole(p: Problem, m: int, weight: np.ndarray) -> Groups:
    """One group of all nodes, for what the partition brings."""
    return Groups(np.inf, (int((p.distance * weight[None, :]).sum(1).argmin()),), np.zeros(len(p.nodes), np.int64))


def provision(state: State, groups: dict[int, Groups], weight: np.ndarray, marginal: bool) -> list[tuple[int, int, int]]:
    """Buys instances for each group of each service; returns (service, group, node) where storage was borrowed from another group.

    The first instance goes to the group's weighted 1-median, and further ones (`marginal`) to the node that saves most, while the saving in
    the objective exceeds the price. A node without storage is passed over for the next best one. All services buy for their first group
    before any buys for its second one, in the order of demand, so that no service takes the storage in which another one has nothing yet.
    """
    p = state.problem
    borrowed = []
    bought: list[tuple[int, np.ndarray, int]] = []
    order = sorted(groups, key=lambda m: (-float(weight[m].sum()), m))
    for g in range(max(len(found.centres) for found in groups.values())):
        for m in order:
            if g < len(groups[m].centres):
                members = np.flatnonzero(groups[m].group == g)
                taken = _first(state, m, members, weight[m])
                if taken is not None:
                    bought.append((m, members, taken))
                if taken is not None and taken not in members:
                    borrowed.append((m, g, taken))
    for m, members, taken in bought if marginal else ():
        nearest = p.distance[members, taken]
        while True:
            saved = (weight[m][members, None] * np.maximum(0.0, nearest[:, None] - p.distance[np.ix_(members, members)])).sum(0)
            able = [i for i, k in enumerate(members.tolist()) if state.fits(m, k)]
            best = max(able, key=lambda i: (saved[i], -i), default=None)
            if best is None or not state.per_ms * saved[best] > state.per_price * p.price[m]:
                break
            state.put(m, int(members[best]))
            nearest = np.minimum(nearest, p.distance[members, members[best]])
    return borrowed


def _first(state: State, m: int, members: np.ndarray, weight: np.ndarray) -> int | None:
    """Places a group's first instance: at its 1-median, else at the next best node, else at the nearest node outside with storage."""
    p = state.problem
    total = (p.distance[:, members] * weight[None, members]).sum(1)
    inside = np.isin(np.arange(len(p.nodes)), members)
    for k in np.lexsort((np.arange(len(p.nodes)), total, ~inside)).tolist():
        if state.has[m, k]:
            return int(k)
        if state.fits(m, k):
            state.put(m, int(k))
            return int(k)
    return None
