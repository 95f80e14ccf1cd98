"""Plays a plan: requests arrive, travel, and share the cores of the nodes, event by event.

The planner's model knows expected distances and idle processing times. Here every request enters at a node of its own, its visits take
exponential times around the service's mean, and all visits on a node share its cores: a visit that could use c cores gets c·min(1, C/W) of
them, where W sums what all visits there could use. No queueing formula is used anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.engine.compiled import heap, pop, push
from armillary.kernels import loop
from armillary.scheduling.provisioning.problem.plan import Plan
from armillary.scheduling.provisioning.problem.problem import Problem

REQUESTS = 20_000


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests as they come: arrival (ms), user, the node they enter at, draws in [0, 1) for the route, and factors of processing time."""

    arrival: np.ndarray
    user: np.ndarray
    origin: np.ndarray
    route: np.ndarray
    factor: np.ndarray


@dataclass(frozen=True, eq=False)
class Delivered:
    """Milliseconds from arrival to answer of each request, and how busy the cores of each node were on average."""

    latency: np.ndarray
    busy: np.ndarray


def draw_requests(problem: Problem, rng: np.random.Generator, count: int = REQUESTS) -> Requests:
    """A Poisson stream of requests, the same for every technique."""
    arrival = np.cumsum(rng.exponential(1e3 / problem.rate.sum(), count))
    user = np.searchsorted(np.cumsum(problem.weight), rng.random(count) * (1 - 1e-12)).clip(max=len(problem.users) - 1)
    # Row u of the shares lies between u and u + 1, so that one search serves all rows.
    nodes = len(problem.nodes)
    shares = np.cumsum(problem.origin, 1)
    rows = (shares / shares[:, -1:] + np.arange(len(problem.users))[:, None]).ravel()
    origin = np.searchsorted(rows, user + rng.random(count), "right") - user * nodes
    longest = int(problem.length.max())
    return Requests(arrival, user, origin.clip(0, nodes - 1), rng.random(count), rng.exponential(1.0, (count, longest)))


def deliver(plan: Plan, requests: Requests) -> Delivered:
    """Plays the requests through a plan in which every user is served."""
    p = plan.problem
    order = np.argsort(plan.user, kind="stable")
    users, paths = plan.user[order], plan.path[order]
    first = np.searchsorted(users, np.arange(len(p.users) + 1))
    if (np.diff(first) == 0).any():
        raise ValueError("a user has no route")
    until = np.cumsum(plan.share[order])
    base = np.concatenate([[0.0], until])[first[requests.user]]
    total = until[first[requests.user + 1] - 1] - base
    chosen = np.searchsorted(until, base + requests.route * total * (1 - 1e-12), "right")
    chosen = np.clip(chosen, first[requests.user], first[requests.user + 1] - 1)
    latency, busy = _played(
        heap(len(requests.user) + 1), requests.arrival, requests.user, requests.origin, requests.factor, paths[chosen], p.chain_start,
        p.chain, p.mb, p.distance, p.cores, p.cpu, p.ms,
    )  # fmt: skip
    return Delivered(latency, busy / p.cores)


@loop
def _played(moving, arrival, user, origin, factor, path, chain_start, chain, mb, distance, cores, cpu, ms):  # type: ignore[no-untyped-def]
    # A request is on its way (in `moving`) or on one node, in that node's list by the virtual time at which it leaves.
    # Virtual time runs at min(1, cores / wanted) per millisecond, so that a visit leaves after its processing time in virtual time.
    count, nodes = len(arrival), len(cores)
    place, leaves, behind = np.zeros(count, np.int64), np.empty(count), np.full(count, -1)
    head, wanted = np.full(nodes, -1), np.zeros(nodes)
    virtual, seen, departure = np.zeros(nodes), np.zeros(nodes), np.full(nodes, np.inf)
    latency, busy = np.empty(count), np.zeros(nodes)
    for r in range(count):
        push(moving, arrival[r] + mb[user[r]] * distance[origin[r], path[r, 0]], 0, r)
    now, done = 0.0, 0
    while done < count:
        k = np.argmin(departure)
        comes = moving.time[0] if moving.held[0] > 0 else np.inf
        if comes <= departure[k]:
            now, _, r = pop(moving)
            k = path[r, place[r]]
        else:
            now = departure[k]
            r = -1
        used = min(wanted[k], cores[k])
        if wanted[k] > 0.0:
            virtual[k] += (now - seen[k]) * min(1.0, cores[k] / wanted[k])
        busy[k] += used * (now - seen[k])
        seen[k] = now
        if r >= 0:
            m = chain[chain_start[user[r]] + place[r]]
            leaves[r] = virtual[k] + ms[m] * factor[r, place[r]]
            wanted[k] += cpu[m]
            before, after = -1, head[k]
            while after >= 0 and leaves[after] <= leaves[r]:
                before, after = after, behind[after]
            behind[r] = after
            if before < 0:
                head[k] = r
            else:
                behind[before] = r
        else:
            r = head[k]
            virtual[k] = leaves[r]
            head[k] = behind[r]
            u = user[r]
            wanted[k] -= cpu[chain[chain_start[u] + place[r]]]
            if head[k] < 0:
                wanted[k] = 0.0
            place[r] += 1
            if place[r] == chain_start[u + 1] - chain_start[u]:
                latency[r] = now - arrival[r]
                done += 1
            else:
                push(moving, now + mb[u] * distance[k, path[r, place[r]]], 0, r)
        if head[k] >= 0:
            departure[k] = now + max(leaves[head[k]] - virtual[k], 0.0) / min(1.0, cores[k] / wanted[k])
        else:
            departure[k] = np.inf
    return latency, busy / max(now, 1e-300)
