"""Problems small enough to see through, and an exhaustive search."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from armillary.scheduling.provisioning import Plan, Problem, city, drawn, problem


def line(
    nodes: int = 2, *, price: float = 1.0, users: tuple[int, ...] = (0,), services: int = 1, mb: float = 1.0, **how: object
) -> Problem:
    """Nodes in a line with links of 8 ms per MB, and one user per entry of `users`, each of whom asks for all services."""
    deadline = how.pop("deadline", None)
    return problem(
        [{"id": f"n{k}", "lat": 0.0, "lon": 0.01 * k, "capacity": 100, "storage": how.get("storage", 100)} for k in range(nodes)],
        [{"a": f"n{k}", "b": f"n{k + 1}", "mbps": 1000} for k in range(nodes - 1)],
        [{"id": f"s{m}", "price": price, "cpu": 1, "storage": 1, "ms": 5} for m in range(services)],
        [
            {"user": f"u{i}", "chain": [f"s{m}" for m in range(services)], "mb": mb, "origin": {f"n{k}": 1.0}, "rate": how.get("rate", 1.0)}
            | ({} if deadline is None else {"deadline_ms": deadline})
            for i, k in enumerate(users)
        ],
        alpha=how.get("alpha", 0.5),  # type: ignore[arg-type]
    )


def random_problem(seed: int, users: int = 12, nodes: int = 8, services: int = 6, *, uniform: bool = False, ample: bool = True) -> Problem:
    """A drawn problem; `ample` makes storage and cores large enough for everything."""
    rng = np.random.default_rng(seed)
    made = drawn(rng, *city(rng, nodes, users), services, uniform=uniform)
    if not ample:
        return made
    return replace(made, storage=np.full(nodes, 1e6), cores=np.full(nodes, 1e6))


def exhaustive(p: Problem) -> float:
    """The lowest objective over all placements, with everybody on the fastest path; capacities must not bind."""
    from armillary.scheduling.provisioning.genetic import _played

    _, nodes, services = p.shape
    bits = services * nodes
    every = (np.arange(1 << bits)[:, None] >> np.arange(bits)) & 1
    people = every.reshape(-1, services, nodes).astype(bool)
    people = people[people[:, p.used].any(2).all(1) & ((people * p.space[None, :, None]).sum(1) <= p.storage).all(1)]
    cost, travel, over, late = _played(
        people,
        p.price,
        p.chain_start,
        p.chain,
        p.access,
        p.mb,
        p.distance,
        p.need,
        p.room,
        p.weight,
        p.deadline - p.processing,
        int(p.length.max()),
    )
    assert over.max() == 0
    cost_0, latency_0 = p.scale
    processing = float((p.weight * p.processing).sum())
    worth = p.alpha * cost / cost_0 + (1 - p.alpha) * (travel + processing) / latency_0
    return float(worth[late == 0].min())


def fastest_path(p: Problem, plan: Plan, u: int) -> float:
    """The least travel of one user over all combinations of instances, one by one."""
    chain = p.chain[p.chain_start[u] : p.chain_start[u + 1]]
    best = np.inf
    for nodes in itertools.product(*(np.flatnonzero(plan.placed[m]) for m in chain)):
        travel = sum(p.origin[u, o] * p.mb[u] * p.distance[o, nodes[0]] for o in range(len(p.nodes)))
        travel += sum(p.mb[u] * p.distance[a, b] for a, b in itertools.pairwise(nodes))
        best = min(best, float(travel))
    return best
