"""Where in a network of caching routers, and on which memory tier, should a content be kept so that the whole bill is least?"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .strategy import Strategy
    from .workload import Network

icn = Arena(
    "storage/icn",
    question="Where in a network of caching routers, and on which memory tier, should a content be kept so that the whole bill is least?",
    metrics=[
        Metric("cost_per_GB", unit="$/GB", better="lower", kind="modelled", doc="hardware, bandwidth, energy, lateness, per GB delivered"),
        Metric("shaken_cost_per_GB", unit="$/GB", better="lower", kind="modelled", doc="at prices three times higher or lower, at random"),
        Metric("depreciation_per_GB", unit="$/GB", better="lower", kind="modelled", doc="of what is held and of flash worn by writing"),
        Metric("bandwidth_per_GB", unit="$/GB", better="lower", kind="modelled"),
        Metric("energy_per_GB", unit="$/GB", better="lower", kind="modelled", doc="idling, reading, writing and moving"),
        Metric("service_per_GB", unit="$/GB", better="lower", kind="modelled", doc="penalties for answers after their deadline"),
        Metric("hit_ratio", better="higher", kind="simulated", doc="share of requests served by a cache"),
        Metric("byte_hit_ratio", better="higher", kind="simulated"),
        Metric("latency_ms", unit="ms", better="lower", kind="simulated", doc="mean, to the last byte"),
        Metric("latency_p99_ms", unit="ms", better="lower", kind="simulated"),
        Metric("replicas", better=None, kind="simulated", doc="mean copies of a content that is cached at all"),
        Metric("writes_per_request", better="lower", kind="simulated", doc="copies made, risen or sunk"),
        Metric("sla_violations", better="lower", kind="simulated", scale="difference", doc="share of answers after their deadline"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", doc="simulated on one thread"),
    ],
    techniques={
        "lce": ".on_path:Lce",
        "lcd": ".on_path:Lcd",
        "prob": ".on_path:Prob",
        "probcache": ".on_path:ProbCache",
        "cl4m": ".on_path:Cl4m",
        "edge": ".on_path:Edge",
        "hash-routing": ".on_path:HashRouting",
        "coa": ".on_path:Coa",
        "lce-tiers": ".on_path:LceTiers",
        "cost-based": ".cost_based:CostBased",
        "optimal": ".optimal:Optimal",
    },
    papers={"cost-based": "cost-based-icn-caching"},
    baseline="lce-tiers",
    tradeoff=("cost_per_GB", "latency_ms"),
    constants=(
        Constant("dram, pmem, nvme", "4, 2, 0.10 $/GiB over 5 years; 0.35, 0.1, 0.002 W/GiB; ∞, 10⁶, 1825 full writes", "", "ours"),
        Constant("links", "0.002 $/GB inside, 0.02 $/GB transit, 80 nJ/B a hop", "", "ours"),
        Constant("service", "gold 20 ms 1e-5 $, silver 50 ms 2e-6 $, bronze 200 ms 2e-7 $", "", "ours"),
        Constant("electricity", "0.12 $/kWh at a PUE of 1.5", "", "ours"),
    ),
    uses=("armillary.storage.icn.replay", "armillary.storage.icn.caches", "armillary.storage.icn.billing", "armillary.storage.icn.prices",
          "armillary.storage.icn.topology"),
)  # fmt: skip

TOPOLOGIES = ("abilene", "tree", "grid", "isp")
ALPHAS = (0.6, 0.8, 1.0, 1.2)
SHARES = (0.001, 0.01, 0.05)
#: (contents, billed requests, requests before) of a case.
SIZES = {"tiny": (500, 4_000, 2_000), "small": (100_000, 400_000, 200_000), "large": (1_000_000, 40_000_000, 10_000_000)}


@icn.cases
def cases(scale: str) -> Iterator[Case]:
    """Four topologies and four skews, each pair at one of three cache sizes; and a small one for the bound."""
    contents, requests, warm = SIZES[scale]
    for i, topology in enumerate(TOPOLOGIES):
        for j, alpha in enumerate(ALPHAS):
            share = SHARES[(i + j) % 3]
            kinds = {topology, f"alpha-{alpha}", "fair" if share >= 0.01 else "scarce"}
            parameters = {"topology": topology, "alpha": alpha, "share": share, "contents": contents, "requests": requests, "warm": warm}
            yield Case(f"{topology}-{alpha}@{100 * share:g}%", _generate, parameters, frozenset(kinds))
    few = {"topology": "line", "alpha": 1.0, "share": 1.5, "contents": 8, "requests": 20_000, "warm": 10_000}
    yield Case("line-of-eight", _generate, few, frozenset({"small", "line"}))


@icn.read
def read(
    path: Path, *, topology: str = "abilene", prices: str = "", catalogue: str = "", sizes: tuple[float, ...] = (0.001, 0.01, 0.05),
    warm: float = 0.3,
) -> Iterator[Case]:  # fmt: skip
    """Requests in a CSV `time_s,receiver,content[,size,class]`, on a topology, at several cache sizes (shares of the catalogue's bytes)."""
    if not sizes or not all(0 <= size < 1e6 for size in sizes):
        raise InputError(f"found {list(sizes)}; expected shares of the catalogue's bytes", where="--sizes")
    if not 0 <= warm < 1:
        raise InputError(f"found {warm:g}; expected a share below 1", where="--warm")
    how: dict[str, Any] = {"topology": topology, "prices": prices, "catalogue": catalogue, "warm": warm}
    for share in sizes:
        _file(path, path.stat().st_mtime_ns, share=share, **how)
        kinds = frozenset({"file", "fair" if share >= 0.01 else "scarce"})
        yield Case(f"{path.name}@{100 * share:g}%", _load, {**how, "share": share}, kinds, source=path)


@icn.run
def run(strategy: Strategy, case: Case) -> dict[str, float]:
    """Simulates, and writes the bill twice: at the prices that decisions were made with, and at shaken ones."""
    import numpy as np

    from armillary.streams import stream

    from . import billing as columns

    network: Network = case.workload
    _compiled(strategy)
    start = time.perf_counter()
    found = strategy.simulate(network)
    seconds = time.perf_counter() - start
    used = found.usage
    gigabytes = max(used.count(columns.DELIVERED) / 1e9, 1e-300)
    asked = max(1.0, used.count(columns.REQUESTS))
    shaken = [columns.bill(used, network.prices.shaken(stream(i, "shaken"))).total for i in range(16)]
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
        "writes_per_request": used.count(columns.WRITES) / asked,
        "sla_violations": float(used.late.sum()) / asked,
        "requests_per_s": len(network.requests) / seconds,
    }


@icn.plots
def plots(result: Result) -> Sequence[Any]:
    """The parts of the bill, by topology."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        for case, cost in result.medians(technique, "cost_per_GB").items():
            place, _, rest = case.partition("-")
            lines.setdefault(place, {}).setdefault(technique, []).append((rest, cost))
    return [panels(lines, "The bill for a GB delivered", "skew @ cache", "$/GB")] if lines else []


def _generate(case: Case, rng: np.random.Generator) -> Network:
    from .prices import Prices
    from .topology import built_in
    from .workload import generate

    how = dict(case.parameters)
    return generate(built_in(how.pop("topology")), Prices(), rng, **how)


def _load(case: Case, rng: np.random.Generator) -> Network:
    assert case.source is not None
    return _file(case.source, case.source.stat().st_mtime_ns, **case.parameters)


@functools.lru_cache(maxsize=4)
def _file(path: Path, changed_ns: int, *, topology: str, prices: str, catalogue: str, warm: float, share: float) -> Network:
    from .files import read_network, read_topology
    from .prices import Prices, read_prices

    billed = read_prices(prices) if prices else Prices()
    return read_network(path, read_topology(topology), billed, catalogue=catalogue, share=share, warm=warm)


@functools.lru_cache
def _compiled(strategy: Strategy) -> None:
    """Compiles outside the clock."""
    import numpy as np

    from armillary.arena import NotForThisCase

    from .prices import Prices
    from .topology import built_in
    from .workload import generate

    few = generate(built_in("line"), Prices(), np.random.default_rng(0), contents=4, requests=20, warm=5, alpha=1.0, share=0.5)
    try:
        strategy.simulate(few)
    except NotForThisCase:
        return
