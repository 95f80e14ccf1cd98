"""Where in a network of caching routers, and on which memory tier, should a content be kept so that the whole bill is lowest?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.errors import InputError
from armillary.timing import Stopwatch

if TYPE_CHECKING:
    import numpy as np

    from .simulation.strategy import Strategy
    from .workload import Network

icn = Arena(
    "storage/icn",
    question="Where in a network of caching routers, and on which memory tier, should a content be kept so that the whole bill is lowest?",
    metrics=[
        Metric("cost_per_GB", unit="$/GB", better="lower", kind="modelled",
               doc="hardware, bandwidth, energy and penalties per GB delivered"),
        Metric("shaken_cost_per_GB", unit="$/GB", better="lower", kind="modelled",
               doc="the same bill when each price is three times higher or lower, at random"),
        Metric("depreciation_per_GB", unit="$/GB", better="lower", kind="modelled",
               doc="depreciation of the memory in use and of flash that writing wears out"),
        Metric("bandwidth_per_GB", unit="$/GB", better="lower", kind="modelled", doc="price of the links that deliveries cross"),
        Metric("energy_per_GB", unit="$/GB", better="lower", kind="modelled", doc="energy for idling, reading, writing and moving"),
        Metric("service_per_GB", unit="$/GB", better="lower", kind="modelled", doc="penalties for answers after their deadline"),
        Metric("hit_ratio", better="higher", kind="simulated", doc="share of requests that a cache serves"),
        Metric("byte_hit_ratio", better="higher", kind="simulated", doc="share of bytes that caches serve"),
        Metric("latency_ms", unit="ms", better="lower", kind="modelled",
               doc="mean latency to the last byte, from links, tier and size without queues"),
        Metric("latency_p99_ms", unit="ms", better="lower", kind="modelled", doc="99th percentile of the latency to the last byte"),
        Metric("replicas", better=None, kind="simulated", doc="mean number of copies of a content that is cached at all"),
        Metric("writes_per_request", better="lower", kind="simulated", doc="copies that are made or moved to another tier per request"),
        Metric("sla_violations", better="lower", kind="modelled", scale="difference", doc="share of answers after their deadline"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", doc="requests that one thread simulates per second"),
    ],
    techniques={
        "lce": ".lce:Lce",
        "lcd": ".lcd:Lcd",
        "prob": ".prob:Prob",
        "probcache": ".probcache:ProbCache",
        "cl4m": ".cl4m:Cl4m",
        "edge": ".edge:Edge",
        "hash-routing": ".hash_routing:HashRouting",
        "coa": ".coa:Coa",
        "lce-tiers": ".lce_tiers:LceTiers",
        "cost-based": ".cost_based:CostBased",
        "optimal": ".optimal:Optimal",
    },
    papers={"cost-based": "cost-based-icn-caching"},
    baseline="lce-tiers",
    tradeoff=("cost_per_GB", "latency_ms"),
    repeats=1,
    telling=("abilene-0.8@1%", "tree-0.8@5%", "grid-1.0@1%", "isp-0.6@0.1%", "line-of-eight"),
    constants=(
        Constant("dram, pmem, nvme", "4, 2, 0.10 $/GiB over 5 years; 0.35, 0.1, 0.002 W/GiB; ∞, 10⁶, 1825 full writes", "", "ours"),
        Constant("links", "0.002 $/GB inside, 0.02 $/GB transit, 80 nJ/B per hop", "", "ours"),
        Constant("service", "gold 20 ms 1e-5 $, silver 50 ms 2e-6 $, bronze 200 ms 2e-7 $", "", "ours"),
        Constant("electricity", "0.12 $/kWh at a PUE of 1.5", "", "ours"),
    ),
)  # fmt: skip

TOPOLOGIES = ("abilene", "tree", "grid", "isp")
ALPHAS = (0.6, 0.8, 1.0, 1.2)
SHARES = (0.001, 0.01, 0.05)
#: (contents, billed requests, requests before) of a case.
SIZES = {"tiny": (500, 4_000, 2_000), "small": (100_000, 400_000, 200_000), "large": (1_000_000, 40_000_000, 10_000_000)}


@icn.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields four topologies with four skews, each pair at one of three cache sizes, and a small network for the bound."""
    contents, requests, warm = SIZES[scale]
    for i, topology in enumerate(TOPOLOGIES):
        for j, alpha in enumerate(ALPHAS):
            share = SHARES[(i + j) % 3]
            kinds = {topology, f"alpha-{alpha}", _room(share)}
            parameters = {"topology": topology, "alpha": alpha, "share": share, "contents": contents, "requests": requests, "warm": warm}
            yield Case(f"{topology}-{alpha}@{100 * share:g}%", _generate, parameters, frozenset(kinds))
    few = {"topology": "line", "alpha": 1.0, "share": 1.5, "contents": 8, "requests": 20_000, "warm": 10_000}
    yield Case("line-of-eight", _generate, few, frozenset({"small", "line"}))


@dataclass(frozen=True)
class Reading:
    """The network on which requests are replayed, its prices and its cache sizes."""

    topology: str = parameter("abilene", "line, abilene, tree, grid, isp or web, or a GraphML, GML or CSV file of links", file=True)
    prices: str = parameter("", "a TOML file of prices; what it leaves out keeps its default", file=True)
    catalogue: str = parameter("", "a table content,size,class,source; without it, sizes and classes come from the requests", file=True)
    sizes: tuple[float, ...] = parameter(SHARES, "cache sizes as shares of the catalogue's bytes", range=(0, 1e6))
    warm: float = parameter(0.3, "share of the requests that warm the caches up and are not billed", range=(0, 1))

    def validate(self) -> None:
        """Checks that there is a cache size, and that some requests are billed."""
        if not self.sizes:
            raise InputError("found none; expected shares of the catalogue's bytes", where="--sizes")
        if self.warm == 1:
            raise InputError("found 1; expected a share below 1", where="--warm")


@icn.read(Reading)
def read(path: Path, how: Reading) -> Network:
    """Reads requests from a table `time_s,receiver,content[,size,class]` (CSV, JSON lines or Parquet) and puts them on a topology."""
    from .pricing.prices import Prices, read_prices
    from .readers.requests import read_network
    from .readers.topologies import read_topology

    prices = read_prices(how.prices) if how.prices else Prices()
    return read_network(path, read_topology(how.topology), prices, catalogue=how.catalogue, share=how.sizes[0], warm=how.warm)


@icn.own_cases
def own_cases(network: Network, name: str, how: Reading) -> Iterator[Case]:
    """Makes one case per cache size."""
    for share in how.sizes:
        kinds = frozenset({"file", _room(share)})
        yield Case(f"{name}@{100 * share:g}%", _sized, {"share": share, "warm": how.warm}, kinds)


@icn.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes twelve requests for four contents at two nodes of Abilene."""
    file = folder / "requests.csv"
    rows = [f"{0.5 * i},{('Seattle', 'Atlanta')[i % 2]},{name},{1000 * (1 + ord(name) % 3)},gold" for i, name in enumerate("abacabadabac")]
    file.write_text("time_s,receiver,content,size,class\n" + "\n".join(rows) + "\n")
    return file, {"topology": "abilene", "sizes": "0.5"}


@icn.run
def run(strategy: Strategy, case: Case) -> dict[str, float]:
    """Simulates the requests, and writes the bill twice: at the prices with which decisions were made, and at shaken ones."""
    import numpy as np

    from armillary.streams import stream

    from .pricing import billing

    network: Network = case.workload
    with Stopwatch() as watch:
        found = strategy.simulate(network)
    used = found.usage
    gigabytes = max(used.count(billing.DELIVERED) / 1e9, 1e-300)
    asked = max(1.0, used.count(billing.REQUESTS))
    shaken = [billing.bill(used, network.prices.shaken(stream(i, "shaken"))).total for i in range(16)]
    latency = 1e3 * used.latency if len(used.latency) else np.zeros(1)
    return {
        "cost_per_GB": found.cost_per_GB,
        "shaken_cost_per_GB": float(np.mean(shaken)) / gigabytes,
        "depreciation_per_GB": found.bill.depreciation / gigabytes,
        "bandwidth_per_GB": found.bill.bandwidth / gigabytes,
        "energy_per_GB": found.bill.energy / gigabytes,
        "service_per_GB": found.bill.service / gigabytes,
        "hit_ratio": found.hit_ratio,
        "byte_hit_ratio": found.byte_hit_ratio,
        "latency_ms": float(latency.mean()),
        "latency_p99_ms": float(np.quantile(latency, 0.99)),
        "replicas": found.replicas,
        "writes_per_request": used.count(billing.WRITES) / asked,
        "sla_violations": float(used.late.sum()) / asked,
        "requests_per_s": len(network.requests) / watch.seconds,
    }


@icn.answer
def answer(result: Result) -> str:
    """The strategy with the lowest bill over all cases, how far the next one is behind, and what that does to the answers' latency."""
    from statistics import geometric_mean

    # The integer program knows the rates in advance, and takes small networks only.
    ranked = {case: result.on(case, "cost_per_GB", without=("optimal",)) for case in result.cases}
    names = [name for name in result.techniques if ranked and all(ranked[case].get(name, 0.0) > 0 for case in ranked)]
    if len(names) < 2:
        return "There are no two strategies with a bill for every case, so there is nothing to compare."
    mean = {name: geometric_mean([ranked[case][name] for case in ranked]) for name in names}
    best, second, *_ = sorted(names, key=lambda name: mean[name])
    first = sum(min(bills, key=lambda name: bills[name]) == best for bills in ranked.values())
    less = 100 * (1 - mean[best] / mean[second])
    many = f"on average over {len(ranked)} cases, of which it is the cheapest on {first}" if len(ranked) > 1 else "on the only case"
    if less < 0.5:
        return f"{best} and {second} have the same bill per GB to within half a per cent {many} (modelled)."
    sooner = [result.ratio(case, "latency_ms", best, second) for case in ranked]
    share = 100 * (geometric_mean([ratio for ratio in sooner if ratio]) - 1) if sooner and None not in sooner else 0.0
    late = f" Its answers come {abs(share):.1f} % {'sooner' if share > 0 else 'later'} than those of {second}." if abs(share) >= 0.5 else ""
    return f"{best} has the lowest bill per GB, {less:.1f} % below {second} {many} (modelled).{late}"


@icn.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the bill per GB, one panel per topology."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, str]:
        topology, _, rest = case.partition("-")
        return topology, rest

    return result.panels("The bill per GB delivered", "cost_per_GB", place, x="skew @ cache", y="$/GB")


@icn.warm_up
def warm_up(strategy: Strategy, case: Case) -> None:
    """Simulates twenty requests on a line of three nodes, so that the clock sees no compilation."""
    import numpy as np

    from .pricing.prices import Prices
    from .simulation.topology import built_in
    from .workload import generate

    few = generate(built_in("line"), Prices(), np.random.default_rng(0), contents=4, requests=20, warm=5, alpha=1.0, share=0.5)
    strategy.simulate(few)


def _room(share: float) -> str:
    return "fair" if share >= 0.01 else "scarce"


def _generate(case: Case, rng: np.random.Generator) -> Network:
    from .pricing.prices import Prices
    from .simulation.topology import built_in
    from .workload import generate

    how = dict(case.parameters)
    return generate(built_in(how.pop("topology")), Prices(), rng, **how)


def _sized(case: Case, rng: np.random.Generator) -> Network:
    from .workload import shared_out

    network: Network = case.loaded
    return replace(network, capacity=shared_out(network.topology, network.catalogue, network.prices, case.parameters["share"]))
