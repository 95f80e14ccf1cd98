"""Which routing algorithm gives this Dragonfly the highest throughput and the lowest latency under this traffic?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .simulation.play import Played
    from .workload import Read, RoutingWork

_ANSWERED, _LATE, _SENT = frozenset({"saturated"}), frozenset({"unsaturated"}), frozenset({"messages"})

routing = Arena(
    "network/routing",
    question="Which routing algorithm gives this Dragonfly the highest throughput and the lowest latency under this traffic?",
    metrics=[
        Metric(
            "accepted_load", "flits/node/cycle", better="higher", on=_ANSWERED,
            doc="flits that arrive per node and cycle after the warm-up, at a load that no routing carries",
        ),
        Metric("packet_latency", "cycles", on=_LATE, doc="mean time from creation to arrival of a packet"),
        Metric("packet_latency_p99", "cycles", on=_LATE, doc="99th percentile of the same"),
        Metric("hops", doc="mean links between routers that a packet takes"),
        Metric("message_completion", "us", on=_SENT, doc="from the start to the arrival of the last message"),
        Metric("hops_per_s", "packet-hops/s", better="higher", kind="by case", on=frozenset({"speed"}), doc="simulated per CPU second"),
    ],
    techniques={
        "min": ".min:Min",
        "valiant": ".valiant:Valiant",
        "ugal-l": ".ugal_l:UgalL",
        "ugal-g": ".ugal_g:UgalG",
        "pb": ".pb:Pb",
        "par": ".par:Par",
        "par-ph": ".par_ph:ParPh",
        "tpr": ".tpr:Tpr",
        "ugal-le": ".ugal_le:UgalLe",
        "piar": ".piar:Piar",
        "auto": ".auto:Auto",
    },
    papers={"piar": "piar"},
    baseline="min",
    repeats=1,
    telling=[
        *(f"{name}-{load}" for name in ("uniform", "adversarial:1", "adversarial:h", "permutation", "mixed:0.5") for load in ("full",
        "medium")), "halo3d26-block",
    ],
    constants=[
        Constant("links", "10 and 15", "cycles", "latency inside and between groups, as in published UGAL studies on BookSim (spec)"),
        Constant("buffers", 32, "flits", "per input port and virtual channel; 256 for links of 100 cycles (spec)"),
        Constant("speed-up", 2, "", "passes of the crossbar per cycle (spec)"),
        Constant("output queue", 8, "flits", "behind the crossbar, or two packets if they are larger (ours)"),
        Constant("router", 1, "cycle", "from the head of an input queue to the link, if nothing is in the way (ours)"),
        Constant("source queues", 10_000, "packets", "per node; later ones are dropped (spec)"),
        Constant("message packets", 4, "flits of 64 bytes", "of applications and traces (ours)"),
    ],
)  # fmt: skip

#: The network, cycles and warm-up of each scale.
SIZES = {"tiny": ("df-72", 2000, 700), "small": ("df-72", 6000, 2000), "large": ("df-1056", 12_000, 5000)}
SYNTHETIC = ("uniform", "adversarial:1", "adversarial:h", "permutation")
MIXED = ("mixed:0.2", "mixed:0.5", "mixed:0.8")
#: Loads below saturation by scale; min still carries 0.95 of them on uniform traffic, and valiant on the others.
LOADS = {"small": {"medium": 0.3, "low": 0.2}, "large": {"medium": 0.4, "low": 0.2}}
OTHER_LOADS = {("small", "uniform", "medium"): 0.5, ("large", "adversarial:h", "medium"): 0.2, ("large", "adversarial:h", "low"): 0.1}
SKELETONS = ("halo3d26", "fft-alltoall", "sweep3d", "multigrid", "crystal-router", "many-to-few")
#: What breaks PIAR's assumptions: traffic, load, and what else is set.
MISFITS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "failed-uniform": ("uniform", 1.0, {"failed": 0.2}),
    "failed-adversarial": ("adversarial:1", 1.0, {"failed": 0.2}),
    "old-status-uniform": ("uniform", 1.0, {"status_cycles": 100}),
    "old-status-adversarial": ("adversarial:1", 1.0, {"status_cycles": 100}),
    "phases-200": ("phases:200", 1.0, {}),
    "bursts": ("bursts:200", 0.9, {}),
}
TINY = ("adversarial:1-full", "uniform-medium", "crystal-router-block")
MESSAGE_FLITS = 4


@routing.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Synthetic and mixed traffic at full, medium and low load, six applications, what PIAR does not expect, and one case for speed."""
    for name, facts, kinds in _works(scale):
        if scale != "tiny" or name in TINY:
            shown = {**facts, "network": "cluster"} if cluster is not None else facts
            network = frozenset() if cluster is not None else frozenset({facts["network"]})
            yield Case(name, _built_in, shown, kinds | network, cluster=cluster)


def _works(scale: str) -> Iterator[tuple[str, dict[str, Any], frozenset[str]]]:
    network, cycles, warm_up = SIZES[scale]
    whole = "large" if scale == "large" else "small"
    base = {"network": network, "cycles": cycles, "warm_up": warm_up}
    for names, kind in ((SYNTHETIC, "synthetic"), (MIXED, "mixed")):
        for name in names:
            full = {**base, "traffic": name, "load": 1.0, "until_arrived": False}
            yield f"{name}-full", full, frozenset({kind, "saturated"})
            if kind == "mixed":
                yield f"{name}-full-2", full, frozenset({kind, "saturated"})
            for level, load in LOADS[whole].items():
                load = OTHER_LOADS.get((whole, name, level), load)
                facts = {**base, "traffic": name, "load": load, "until_arrived": True}
                yield f"{name}-{level}", facts, frozenset({kind, "unsaturated"})
    for name in SKELETONS:
        for placement in ("block", "random"):
            facts = {
                "network": network, "skeleton": name, "placement": placement, "load": 0.3, "iterations": 1 if scale == "tiny" else 2,
                "flits": MESSAGE_FLITS,
            }  # fmt: skip
            yield f"{name}-{placement}", facts, frozenset({"application", "messages", "unsaturated"})
    for name, (traffic, load, more) in MISFITS.items():
        facts = {**base, "traffic": traffic, "load": load, "until_arrived": False, **more}
        yield name, facts, frozenset({"misfit", "saturated"})
    facts = {"network": "df-1056", "cycles": 3000, "warm_up": 1000, "traffic": "uniform", "load": 0.5, "until_arrived": False}
    yield "speed", facts, frozenset({"speed", "measured"})


@dataclass(frozen=True)
class Reading:
    """How a network or messages are read, and what is sent where a file does not say."""

    network: str = parameter(
        "df-72", "where messages run: df-72 and its like, p,a,h,g, a table of edges, a cluster preset or file", file=True
    )
    nodes: str = parameter("", "a table node,router beside one of edges", file=True)
    per_router: int = parameter(1, "nodes of every router, if there is no table of nodes", range=(1, 1024))
    traffic: tuple[str, ...] = parameter(("uniform", "adversarial:1"), "synthetic traffic on a network that is given")
    load: tuple[float, ...] = parameter((0.3, 1.0), "its loads in flits per node and cycle", range=(1e-6, 1.0))
    cycles: int = parameter(6000, "cycles of synthetic traffic, a third of them to warm up", range=(10, 100_000_000))
    flits: int = parameter(MESSAGE_FLITS, "largest packet of messages, in flits", range=(1, 16))
    flit_bytes: int = parameter(64, "bytes of a flit", range=(1, 1 << 20))
    cycle_ns: float = parameter(0.0, "nanoseconds per cycle; 0 takes 1, or what a cluster's links say", range=(0.0, 1e9))
    failed: float = parameter(0.0, "share of global links that failed, drawn at random", range=(0.0, 0.9))
    max_cycles: int = parameter(20_000_000, "cycles after which messages must have arrived", range=(1, 1 << 29))

    @property
    def cycle_ns_of_network(self) -> float:
        """The cycle that the latencies of a cluster are counted in."""
        return self.cycle_ns


@routing.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Read:
    """Reads a table of edges, a cluster file, or messages (`time_ns,source,destination,bytes` in CSV or Parquet; the folder of an
    OTF2 archive)."""
    from .workload import own_works, read_network, read_work

    if how.network != "df-72":
        read_network(how.network, how.nodes, how.per_router, how.cycle_ns, how.flit_bytes)
    found = read_work(path, how)
    list(own_works(found, how))  # says what is wrong before anything runs
    return found


@routing.own_cases
def own_cases(loaded: Read, name: str, how: Reading) -> Iterator[Case]:
    """The file's network under each traffic and load, or its messages."""
    from .workload import own_works

    for part, facts in own_works(loaded, how):
        kinds = {"file", "messages", "unsaturated"} if loaded.messages is not None else {"file", "saturated", "unsaturated"}
        more = {
            "cycles": how.cycles, "flits": how.flits if loaded.messages is not None else 1, "cycle_ns": how.cycle_ns or 1.0,
            "failed": how.failed, "max_cycles": how.max_cycles,
        }  # fmt: skip
        yield Case(f"{name}:{part}" if part else name, _own, {**facts, **more}, frozenset(kinds))


@routing.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes sixteen nodes' exchange with the nodes eight further on, in three rounds, as CSV."""
    path = folder / "messages.csv"
    rows = [f"{2000 * k + 10 * i},{i},{(i + 8) % 72},{4096 if i % 2 else 512}" for k in range(3) for i in range(16)]
    path.write_text("time_ns,source,destination,bytes\n" + "\n".join(rows) + "\n")
    return path, {"network": "df-72"}


@routing.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loop."""
    from .fabric.dragonfly import Dragonfly
    from .simulation.play import simulate

    simulate(Dragonfly(1, 2, 1), technique, "uniform", 0.1, cycles=3, until_arrived=False)


@routing.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case's traffic under the technique."""
    work: RoutingWork = case.workload
    played = work.play(technique)
    values: dict[str, float] = {"hops": played.hops}
    if "saturated" in case.kinds:
        values["accepted_load"] = played.accepted
    if "unsaturated" in case.kinds:
        values |= {"packet_latency": played.latency_at_least, "packet_latency_p99": played.quantile_at_least(0.99)}
    if "messages" in case.kinds:
        values["message_completion"] = (played.completion + 1) * work.cycle_ns / 1000
    if "speed" in case.kinds:
        values["hops_per_s"] = played.hops_per_s
    return Outcome(values, _artifacts(technique, played))


def _artifacts(technique: Any, played: Played) -> list[Artifact]:
    import numpy as np

    load = np.sort(played.channel_load)[::-1]
    counts = {**played.counts, "detoured_share": played.detoured, "saturated": played.saturated, "busiest_channel": float(load[0])}
    found = [Artifact.table("counts", [{"what": name, "value": float(value)} for name, value in counts.items()])]
    if played.arrived:
        at = np.searchsorted(np.cumsum(played.latencies), np.maximum(1, np.linspace(0, 1, 201) * played.arrived))
        found.append(Artifact.quantiles("latency", at, "cycles"))
    if hasattr(technique, "used"):
        found.append(Artifact.table("windows", [{"routing": name, "windows": many} for name, many in technique.used(played.state).items()]))
    return found


@routing.answer
def answer(result: Result) -> str:
    """Names the routing that carries most, the one with the least latency, and what the difference to minimal routing is."""
    apart = {name for name in result.techniques if name in routing.techniques and routing.technique(name).oracle}
    said = []
    for metric, text in (("accepted_load", "carries the highest load"), ("packet_latency", "has the lowest latency")):
        if metric not in result.metrics:
            continue
        on = {case: found for case in result.cases if (found := result.on(case, metric, without=apart))}
        if not on:
            continue
        # Routings within 1 % of the best share the first place.
        sign = 1 if metric == "accepted_load" else -1
        most = {case: max(sign * value for value in found.values()) for case, found in on.items()}
        near = {case: [t for t, v in found.items() if sign * v >= most[case] - 0.01 * abs(most[case])] for case, found in on.items()}
        names = [name for best in near.values() for name in best]
        best = max((t for t in [*routing.techniques, *names] if t in names), key=names.count)
        won = [case for case, first in near.items() if best in first]
        gains = [r for case in won if best != "min" and (r := result.ratio(case, metric, best, "min"))]
        more = ""
        if gains:
            low, high = min(gains), max(gains)
            ends = [f"{gain:,.0f}" if gain >= 10 else f"{gain:.2g}" for gain in (low, high)]
            spread = " to ".join(dict.fromkeys(ends))
            more = f", {spread} times better than min"
        where = f"on {won[0]}" if len(on) == 1 else f"on {len(won)} of {len(on)} cases"
        said.append(f"{best} {text} {where}{more}")
    if not said:
        return "Nothing was delivered, so there is no answer."
    return f"{'; '.join(said)}."


@routing.plots
def plots(result: Result) -> Sequence[Any]:
    """Accepted load and latency, by traffic."""
    drawn: list[Any] = []
    for metric, title in (("accepted_load", "Accepted load at saturation"), ("packet_latency", "Packet latency below saturation")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric == "packet_latency")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> RoutingWork:
    from .workload import built_in

    return built_in(case.parameters, case.cluster, rng)


def _own(case: Case, rng: np.random.Generator) -> RoutingWork:
    from .workload import own_work

    return own_work(case.loaded, case.parameters, rng)
