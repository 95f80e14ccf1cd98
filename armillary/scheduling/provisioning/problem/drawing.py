"""Edge networks that are drawn: sites and users of a city centre, and everything that a list of positions leaves open.

Positions come from the EUA data set or are drawn in a box of its size. Links are a minimum spanning tree and each node's three nearest
nodes. Cores, storage, services, prices and deadlines are drawn from the ranges below, which are ours.
"""

from __future__ import annotations

import math

import numpy as np

from .problem import Problem, checked, distances

#: The box of the built-in city, kilometres east–west and north–south, and its numbers of sites and users (EUA, Melbourne's centre).
BOX_KM, SITES, PEOPLE = (2.0, 1.3), 125, 816
CENTRE = (-37.815, 144.965)
KM_PER_DEGREE = 111.195
NEAREST, MBPS = 3, 1000.0
#: The share of a user's requests that enters at home; the rest is spread over the nearest other nodes.
AT_HOME, ELSEWHERE = 0.7, 3
CORES = (8.0, 16.0, 32.0)
#: What all requests load, as a share of all cores.
LOAD = 0.4
MEGABYTES = (0.1, 2.0)
MILLISECONDS, CPU, PRICES, SPACE = (2.0, 10.0), (0.5, 2.0), (1.0, 5.0), (0.5, 2.0)
#: The share of all services that a node's storage holds.
HOLDS = (0.3, 0.6)
#: How often a chain's links may cross the mean distance of two nodes before the deadline.
PATIENCE = (1.0, 2.0)
CHAIN = (3, 6)
POPULARITY = 0.8


def city(rng: np.random.Generator, nodes: int, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes (n × 2) of sampled sites and users of the built-in city; users beyond 816 are drawn anew."""
    sites = _in_box(rng, SITES)
    people = _in_box(rng, max(PEOPLE, users))
    return sites[np.sort(rng.choice(len(sites), nodes, replace=False))], people[np.sort(rng.choice(len(people), users, replace=False))]


def _in_box(rng: np.random.Generator, count: int) -> np.ndarray:
    km = (rng.random((count, 2)) - 0.5) * np.array([BOX_KM[1], BOX_KM[0]])
    return np.array(CENTRE) + km / np.array([KM_PER_DEGREE, KM_PER_DEGREE * math.cos(math.radians(CENTRE[0]))])


def kilometres(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances (n × m) between positions, on a plane that touches the earth at their middle."""
    squeeze = math.cos(math.radians(float(a[:, 0].mean())))
    north, east = a[:, None, 0] - b[None, :, 0], (a[:, None, 1] - b[None, :, 1]) * squeeze
    return KM_PER_DEGREE * np.sqrt(north * north + east * east)


def linked(apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of all links: a minimum spanning tree (Prim's), and from each node to its three nearest ones."""
    nodes = len(apart)
    found: set[tuple[int, int]] = set()
    inside, nearest, to = np.zeros(nodes, bool), apart[0].copy(), np.zeros(nodes, int)
    inside[0] = True
    for _ in range(nodes - 1):
        k = int(np.argmin(np.where(inside, np.inf, nearest)))
        found.add((min(k, int(to[k])), max(k, int(to[k]))))
        inside[k] = True
        closer = apart[k] < nearest
        nearest[closer], to[closer] = apart[k][closer], k
    for k in range(nodes):
        for j in np.argsort(np.where(np.arange(nodes) == k, np.inf, apart[k]), kind="stable")[: min(NEAREST, nodes - 1)]:
            found.add((min(k, int(j)), max(k, int(j))))
    ends = np.array(sorted(found), np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def origins(home: np.ndarray, apart: np.ndarray, uniform: bool) -> np.ndarray:
    """The share of each user's requests (U × K) that enters at each node: most at home, or everywhere alike."""
    users, nodes = len(home), len(apart)
    if uniform:
        return np.full((users, nodes), 1.0 / nodes)
    out = np.zeros((users, nodes))
    for u, k in enumerate(home.tolist()):
        near = np.argsort(np.where(np.arange(nodes) == k, np.inf, apart[k]), kind="stable")[: min(ELSEWHERE, nodes - 1)]
        out[u, near] = (1 - AT_HOME) / len(near) if len(near) else 0.0
        out[u, k] = AT_HOME if len(near) else 1.0
    return out


def drawn(
    rng: np.random.Generator, sites: np.ndarray, people: np.ndarray, services: int, *, uniform: bool = False, alpha: float = 0.5,
    names: tuple[str, ...] = (), links: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None, where: str | None = None,
) -> Problem:  # fmt: skip
    """A problem on these positions (latitude, longitude), with everything else drawn; `links` are (a, b, Mbit/s) if they are known."""
    nodes, users = len(sites), len(people)
    apart = kilometres(sites, sites)
    a, b = linked(apart) if links is None else links[:2]
    mbps = np.full(len(a), MBPS) if links is None else links[2]
    distance = distances(nodes, a, b, mbps)
    cores = rng.choice(np.array(CORES), nodes)
    ms, cpu, price, space = (rng.uniform(*ends, services) for ends in (MILLISECONDS, CPU, PRICES, SPACE))
    storage = np.maximum(rng.uniform(*HOLDS, nodes) * space.sum(), space.max())
    kinds = _kinds(rng, services)
    popular = np.arange(1, len(kinds) + 1) ** -POPULARITY
    chosen = rng.choice(len(kinds), users, p=popular / popular.sum())
    chains = [kinds[i] for i in chosen]
    length = np.array([len(chain) for chain in chains])
    mb = rng.uniform(*MEGABYTES, users)
    rate = rng.lognormal(0.0, 0.5, users)
    work = np.array([float(sum(cpu[m] * ms[m] for m in chain)) for chain in chains]) / 1e3
    rate *= LOAD * cores.sum() / (rate * work).sum()
    origin = origins(np.argmin(kilometres(people, sites), 1), apart, uniform)
    far = distance[~np.eye(nodes, dtype=bool)].mean() if nodes > 1 else 0.0
    patience = rng.uniform(*PATIENCE, users)
    made = Problem(
        nodes=names or tuple(f"n{k}" for k in range(nodes)), latitude=sites[:, 0].copy(), longitude=sites[:, 1].copy(), cores=cores,
        storage=storage, link_a=a, link_b=b, link_mbps=mbps, services=tuple(f"s{m}" for m in range(services)), price=price, cpu=cpu,
        space=space, ms=ms, users=tuple(f"u{u}" for u in range(users)), chain_start=np.concatenate([[0], np.cumsum(length)]),
        chain=np.concatenate([np.array(chain, np.int64) for chain in chains]), mb=mb, rate=rate, deadline=np.full(users, np.inf),
        origin=origin, distance=distance, alpha=alpha,
    )  # fmt: skip
    made.deadline[:] = made.fastest + mb * length * far * patience
    return checked(made, where)


def _kinds(rng: np.random.Generator, services: int) -> list[list[int]]:
    """As many kinds of requests as services: the front end first, then others, popular ones more often; each service is used."""
    popular = np.arange(1, services) ** -POPULARITY if services > 1 else np.empty(0)
    out: list[list[int]] = []
    for i in range(services):
        length = min(int(rng.integers(CHAIN[0], CHAIN[1] + 1)), services)
        must = i if i else 1 % services
        others = [int(m) + 1 for m in rng.choice(services - 1, length - 1, replace=False, p=popular / popular.sum())] if length > 1 else []
        if others and must and must not in others:
            others[int(rng.integers(len(others)))] = must
        out.append([0, *others])
    return out
