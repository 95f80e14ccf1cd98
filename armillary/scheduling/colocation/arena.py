"""Which hyper-threads should this latency-sensitive container get, next to whom?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .placement.packing import Packing
    from .readers.documents import Read
    from .workload import ColocationWork

colocation = Arena(
    "scheduling/colocation",
    question="Which hyper-threads should this latency-sensitive container get, next to whom?",
    metrics=[
        Metric("p95_stretch", doc="geometric mean over instances of p95 over p95 alone on a server of speed 1"),
        Metric("p95_worst", doc="99th percentile of the same"),
        Metric("cpu_cores", unit="cores", kind="modelled", doc="CPU used for the same requests, summed over instances"),
        Metric("saturated", scale="difference", doc="share of the instances whose threads are at least 95 % busy"),
        Metric("slo_violation", scale="difference", doc="share of the instances whose p95 is more than twice that alone"),
        Metric("promise_error", scale="difference", doc="mean of |promised − delivered|/delivered CPU; rules promise no interference"),
        Metric("usage_mape", kind="modelled", scale="difference", doc="the predictor's mean relative error of CPU on random placements"),
        Metric("servers_used", kind="modelled", better=None, doc="servers with any instance"),
        Metric("moves", better=None, doc="instances that were moved to another place"),
        Metric("place_per_s", better="higher", kind="measured", doc="instances placed per second"),
    ],
    techniques={
        "first-fit": ".first_fit:FirstFit",
        "best-fit": ".best_fit:BestFit",
        "least-loaded": ".least_loaded:LeastLoaded",
        "full-core": ".full_core:FullCore",
        "spread-by-speed": ".spread_by_speed:SpreadBySpeed",
        "core-level": ".core_level:CoreLevel",
        "gradient-boosting": ".gradient_boosting:GradientBoosting",
        "hestia": ".hestia:Hestia",
        "as-is": ".as_is:AsIs",
        "oracle-greedy": ".oracle_greedy:OracleGreedy",
    },
    papers={"hestia": "hestia"},
    baseline="least-loaded",
    tradeoff=("p95_stretch", "cpu_cores"),
    repeats=1,
    telling=("sc-heavy", "ss-heavy", "mixed", "calm"),
    constants=[
        Constant("SMT", 0.25, "", "slowdown by a busy sibling that presses on nothing; published aggregate gains of 1.2 to 1.3"),
        Constant("core", 0.9, "", "added at full pressure and sensitivity: 2.15 in all, SMT's bad cases"),
        Constant("socket", "0.15·x^1.5", "", "by caches and memory of the socket (chosen)"),
        Constant("applications", "Beta(2, 3), Beta(1.5, 3)", "", "ports and caches; last level and memory; the two others are ours"),
        Constant("servers", "2 × 16 × 2, speeds 1 and 1.25", "", "the preset smt-2x16x2, kinds in turn"),
        Constant("instances", "2 to 8 threads, 35 to 60 % busy alone", "", "75 % of all threads, ±30 % over the day, peaks at any hour"),
        Constant("readings", 0.05, "", "noise of CPI, MPKI, GB/s, MB/s and CPU"),
        Constant("objective", 2, "× p95 alone", "beyond which an instance violates it (chosen)"),
    ],
)  # fmt: skip

#: Servers and instances of the cases, requests per instance, and rounds of ten minutes.
SIZES = {"tiny": (6, 60, 1000, 4), "small": (40, 400, 4000, 12), "large": (400, 4_000, 20_000, 12)}
#: The same for one case with more servers; at the large scale it is the paper's population.
FLEETS = {"small": (200, 2_000, 4000, 6), "large": (3_132, 32_408, 20_000, 3)}
#: How many draws there are of each contended population, and of the calm one; `compare` shows the first.
DRAWS, CALM_DRAWS = {"tiny": 1, "small": 6, "large": 6}, {"tiny": 1, "small": 4, "large": 4}
CONTENDED = ("sc-heavy", "ss-heavy", "mixed")


@colocation.cases
def cases(scale: str) -> Iterator[Case]:
    """Populations that contend on cores, on sockets, or on both, a calm one in which nobody is sensitive, and a larger fleet."""
    for draw in range(DRAWS[scale]):
        for population in CONTENDED:
            yield _case(population, draw, SIZES[scale], "contended")
    for draw in range(CALM_DRAWS[scale]):
        yield _case("calm", draw, SIZES[scale], "calm")
    if scale in FLEETS:
        yield _case("mixed", 0, FLEETS[scale], "contended", "fleet")


def _case(population: str, draw: int, size: tuple[int, int, int, int], kind: str, name: str = "") -> Case:
    servers, instances, requests, rounds = size
    facts = {"population": population, "servers": servers, "instances": instances, "requests": requests, "rounds": rounds}
    return Case(name or population + (f"-{draw + 1}" if draw else ""), _built_in, facts, frozenset({kind}))


@dataclass(frozen=True)
class Reading:
    """How instances and their servers are read."""

    usage: str = parameter("", "Alibaba 2018: container_usage.csv beside container_meta.csv", file=True)
    topology: str = parameter("smt-2x16x2", "`lscpu -p` text, or a cluster file or preset whose first node all servers are", file=True)
    servers: int = parameter(0, "servers that can take instances; 0: those that the file names", range=(0, 100_000))
    hour: float = parameter(12.0, "hour of the day at which the file was taken", range=(0.0, 24.0))
    swing: float = parameter(0.0, "by which share the load rises and falls over the day, with its peak two hours later", range=(0.0, 0.9))
    cv: float = parameter(1.0, "coefficient of variation of service times", range=(0.0, 5.0))
    requests: int = parameter(4000, "simulated requests per instance", range=(100, 100_000))


@colocation.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Read:
    """Reads instances: our table, or Alibaba's cluster-trace-v2018 (a folder, or container_meta.csv with --usage)."""
    from .readers.documents import read_instances

    return read_instances(path, usage=how.usage, topology=how.topology, servers=how.servers)


@colocation.own_cases
def own_cases(loaded: Read, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {
        "instances": len(loaded.names), "applications": len(loaded.app_names), "servers": len(loaded.fleet), "skipped": loaded.skipped,
        "swing": how.swing, "cv": how.cv, "requests": how.requests, "hour": how.hour,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file"}))


@colocation.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes twelve instances of four applications on two servers of 16 threads."""
    rows = ["instance,app,server,cpuset,cpu_cores,cpi,mpki,mem_gbps,rps"]
    apps = {
        "api": (0.8, 6.0, 1.0, 400.0), "cache": (1.1, 22.0, 5.5, 900.0), "encode": (0.5, 2.0, 0.6, 20.0), "search": (1.4, 18.0, 3.0, 150.0),
    }  # fmt: skip
    sets = ("0-1", "2-3", "4-5", "6-7", "8-9", "10-11")
    for i in range(12):
        name = list(apps)[i % 4]
        cpi, mpki, gbps, rps = apps[name]
        rows.append(f"{name}-{i // 4},{name},s{i // 6},{sets[i % 6]},{0.8 + 0.05 * (i % 5):.2f},{cpi},{mpki},{gbps},{rps:g}")
    (folder / "instances.csv").write_text("\n".join(rows) + "\n")
    lscpu = ["# CPU,Core,Socket,Node", *(f"{cpu},{cpu % 8},{cpu % 8 // 4},{cpu % 8 // 4}" for cpu in range(16))]
    (folder / "lscpu.txt").write_text("\n".join(lscpu) + "\n")
    return folder / "instances.csv", {"topology": str(folder / "lscpu.txt"), "requests": "500"}


@colocation.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops, so that the clock sees decisions alone."""
    import numpy as np

    from armillary.scheduling.contention import Fleet, Topology

    from .simulation.play import play
    from .workload import built_in

    fleet = Fleet((Topology.regular(2, 4, 2, speed=1.0), Topology.regular(2, 4, 2, speed=1.25)), np.array([0, 1]))
    play(built_in(np.random.default_rng(0), fleet, population="mixed", instances=5, applications=3, requests=50, rounds=1), technique)


@colocation.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case and asks the predictor about random placements too."""
    from .simulation.play import now, play, relative_error, truth
    from .workload import START_H

    work: ColocationWork = case.workload
    played = play(work, technique)
    values = played.metrics()
    # The same instances in places that nobody has chosen: what the predictor says, and what is true.
    other: Packing = case.once(_shuffled)
    scene = work.scene(other)
    now(work, scene, START_H, exact=technique.oracle)
    settled, ids = truth(work, other, START_H)
    values["usage_mape"] = relative_error(played.scheduler.predict(scene)[ids], settled.use * work.threads[ids])
    values["place_per_s"] = len(work) / max(played.place_s, 1e-9)
    rows = [
        {"instance": work.names[i], "app": work.app_names[int(work.app[i])],
         "server": work.server_names[int(played.packing.server[i])] if work.server_names else str(int(played.packing.server[i])),
         "cpuset": work.fleet.topology(int(played.packing.server[i])).cpuset(played.packing.rows(i))}
        for i in range(min(len(work), 1000))
    ]  # fmt: skip
    return Outcome(values, [Artifact.table("placement", rows)])


def _shuffled(case: Case) -> Packing:
    from .simulation.play import shuffled

    return shuffled(case.workload, case.stream("shuffled"))


@colocation.answer
def answer(result: Result) -> str:
    """Names the technique with the lowest stretch, what that is against least-loaded, and what the oracle would still gain."""
    if "p95_stretch" not in result.metrics:
        return "Ask for the metric p95_stretch to get an answer."
    oracles = {name for name in result.techniques if name in colocation.techniques and colocation.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "p95_stretch", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    winners = {case: min(found, key=lambda t: found[t]) for case, found in ranked.items()}
    names = list(winners.values())
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, name in winners.items() if name == best]
    said = f"{best} has the lowest p95 on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    ratios = [result.ratio(case, "p95_stretch", best, "least-loaded") for case in won if best != "least-loaded"]
    shares = [100 * (1 - 1 / ratio) for ratio in ratios if ratio]
    if shares:
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % below least-loaded's"
    lost = list(dict.fromkeys(name for case, name in winners.items() if name != best))
    said += (f"; elsewhere it is {listed(lost)}" if lost else "") + "."
    left = [100 * (1 - 1 / ratio) for case in won if (ratio := result.ratio(case, "p95_stretch", "oracle-greedy", best))]
    if left and max(left) > 0.5:
        said += f" A predictor that knew the contention model would gain {max(left):.0f} % more at the most."
    return said


@colocation.plots
def plots(result: Result) -> Sequence[Any]:
    """Stretches, tails and CPU by case."""
    drawn: list[Any] = []
    for metric, title in (("p95_stretch", "p95 over p95 alone"), ("p95_worst", "The worst percent"), ("cpu_cores", "CPU used")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "cpu_cores")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> ColocationWork:
    from armillary.cluster import preset
    from armillary.scheduling.contention import Fleet

    from .workload import built_in

    p = case.parameters
    fleet = Fleet.of(preset("smt-2x16x2"), p["servers"])
    return built_in(
        rng, fleet, population=p["population"], instances=p["instances"], requests=p["requests"], seed=case.seed32("requests"),
        rounds=p["rounds"],
    )  # fmt: skip


def _own(case: Case, rng: np.random.Generator) -> ColocationWork:
    from .readers.documents import own_work

    return own_work(case.loaded, case.parameters, case.seed32("requests"))
