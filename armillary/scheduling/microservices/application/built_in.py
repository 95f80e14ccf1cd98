"""The built-in applications: a shop, a social network, hotel reservations, and applications drawn from published shapes of call graphs.

The social network and the hotel follow the services and call paths of DeathStarBench (An Open-Source Benchmark Suite for Microservices,
ASPLOS 2019). CPU times, threads, replicas and nodes are chosen.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import unknown

from .application import Application, Call, RequestType, Service, tree

#: Nodes over which services are spread.
NODES = 3
#: Objectives are this many times the critical path.
SLACK = 8.0


def built_in(name: str) -> Application:
    """An application by its name: shop-8, social-28 or hotel-17."""
    made = {"shop-8": shop, "social-28": social, "hotel-17": hotel}
    if name not in made:
        raise unknown("application", name, made)
    return made[name]()


def _services(rows: str, threads: int, replicas: int = 2) -> tuple[Service, ...]:
    """`name:cpu_ms` separated by blanks; leaves that only look something up vary little."""
    found = []
    for i, row in enumerate(rows.split()):
        name, _, cpu = row.partition(":")
        cv = 0.5 if name.endswith(("-cache", "-db")) else 1.0
        found.append(Service(name, threads, float(cpu), cv, replicas, node=f"node-{i % NODES}"))
    return tuple(found)


def _with_objectives(name: str, services: tuple[Service, ...], requests: list[tuple[str, float, Call]], rate: float) -> Application:
    """Objectives are eight times the critical path, rounded up to 10 ms."""
    loose = Application(name, services, tuple(RequestType(one, share, call) for one, share, call in requests), 1e6, rate)
    typed = tuple(
        RequestType(one, share, call, 10.0 * np.ceil(SLACK * 100 * loose.critical_s(r)).item())
        for r, (one, share, call) in enumerate(requests)
    )
    return Application(name, services, typed, max(one.slo_ms or 0.0 for one in typed), rate)


def shop() -> Application:
    """Eight services: a shop with browsing, search and checkout."""
    services = _services(
        "frontend:6 catalogue:9 recommender:14 cart:8 checkout:12 payment:16 shipping:10 orders-db:7", threads=16
    )  # fmt: skip
    db = tree("orders-db")
    browse = tree("frontend", [tree("catalogue", db), tree("recommender", tree("catalogue"))])
    look = tree("frontend", tree("cart", db), tree("shipping"))
    buy = tree("frontend", tree("checkout", [tree("cart", db), tree("catalogue", db)], tree("payment"), [tree("shipping"), db]))
    return _with_objectives("shop-8", services, [("browse", 0.6, browse), ("cart", 0.25, look), ("checkout", 0.15, buy)], 150.0)


def social() -> Application:
    """28 services: a social network with compose-post, read-home-timeline and read-user-timeline."""
    services = _services(
        "nginx:2 compose-post:5 unique-id:1 media:3 user:3 text:5 url-shorten:3 user-mention:3 post-storage:5 user-timeline:4 "
        "home-timeline:4 social-graph:4 write-home:5 media-frontend:2 post-cache:1.5 post-db:3 user-cache:1 user-db:3 url-cache:1 "
        "url-db:3 graph-cache:1 graph-db:3 home-cache:1.5 timeline-cache:1.5 timeline-db:3 media-cache:1 media-db:4 rabbit-queue:2",
        threads=24,
    )
    post = tree("post-storage", tree("post-cache"), tree("post-db"))
    graph = tree("social-graph", tree("graph-cache"), tree("graph-db"))
    text = tree("text", [tree("url-shorten", tree("url-cache"), tree("url-db")), tree("user-mention", tree("user-cache"))])
    media = tree("media", tree("media-frontend"), [tree("media-cache"), tree("media-db")])
    write = tree("write-home", tree("rabbit-queue"), graph, tree("home-cache"))
    timeline = tree("user-timeline", tree("timeline-cache"), tree("timeline-db"))
    compose = tree(
        "nginx",
        tree("compose-post", [text, media, tree("unique-id"), tree("user", tree("user-cache"), tree("user-db"))], [post, timeline], write),
    )
    home = tree("nginx", tree("home-timeline", tree("home-cache"), [tree("post-storage", tree("post-cache"), tree("post-db")), graph]))
    own = tree("nginx", tree("user-timeline", tree("timeline-cache"), tree("timeline-db"), tree("post-storage", tree("post-cache"))))
    requests = [("compose-post", 0.1, compose), ("read-home-timeline", 0.6, home), ("read-user-timeline", 0.3, own)]
    return _with_objectives("social-28", services, requests, 500.0)


def hotel() -> Application:
    """17 services: hotel reservations with search, recommendation, login and booking."""
    services = _services(
        "frontend:3 search:5 geo:6 rate:5 profile:4 recommendation:8 user:3 reservation:6 attractions:4 review:4 "
        "geo-db:3 rate-cache:1 rate-db:3 profile-cache:1 profile-db:3 reservation-cache:1 reservation-db:4", threads=16,
    )  # fmt: skip
    profile = tree("profile", tree("profile-cache"), tree("profile-db"))
    near = tree("search", tree("geo", tree("geo-db")), tree("rate", tree("rate-cache"), tree("rate-db")))
    free = tree("reservation", tree("reservation-cache"), tree("reservation-db"))
    look = tree("frontend", near, free, [profile, tree("attractions"), tree("review")])
    advice = tree("frontend", tree("recommendation"), profile)
    login = tree("frontend", tree("user"))
    book = tree("frontend", tree("user"), free)
    requests = [("search", 0.6, look), ("recommend", 0.38, advice), ("login", 0.01, login), ("reserve", 0.01, book)]
    return _with_objectives("hotel-17", services, requests, 300.0)


def drawn(rng: np.random.Generator, services: int = 100, types: int = 6, rate: float = 150.0) -> Application:
    """Call trees of depth 1 to 6 with geometric fan-out, over services of which few are called often.

    Published call graphs are small trees with many leaves, in which about 5 % of the services take most calls (Characterizing
    Microservice Dependency and Performance: Alibaba Trace Analysis, SoCC 2021). Deeper services are called by shallower ones only.
    """
    level = np.sort(rng.integers(1, 7, services))
    level[0] = 0
    weight = rng.pareto(1.1, services) + 0.05

    def grown(service: int, depth: int, room: list[int]) -> Call:
        below = np.flatnonzero(level > level[service])
        groups: list[tuple[Call, ...]] = []
        while depth and len(below) and room[0] > 0 and (not groups or rng.random() < 0.4):
            many = min(int(rng.geometric(0.6)), room[0])
            room[0] -= many
            picked = rng.choice(below, many, p=weight[below] / weight[below].sum()).tolist()
            groups.append(tuple(grown(one, depth - 1, room) for one in picked))
        return Call(names[service], tuple(groups))

    names = [f"service-{i}" for i in range(services)]
    made = tuple(
        Service(name, 24, float(rng.uniform(1.0, 6.0)), 1.0, 2, node=f"node-{i % (2 * NODES)}") for i, name in enumerate(names)
    )
    shares = rng.dirichlet(np.full(types, 2.0))
    shares[-1] = 1 - shares[:-1].sum()
    requests = [(f"type-{k}", float(shares[k]), grown(0, int(rng.integers(1, 7)), [40])) for k in range(types)]
    return _with_objectives(f"drawn-{services}", made, requests, rate)
