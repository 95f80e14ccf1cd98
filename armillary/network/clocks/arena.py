"""How closely can neighbouring clocks in this network be kept together, and by which algorithm and which measurement?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .graph.network import ClockNetwork
    from .readers.exchanges import Exchanges
    from .workload import ClockWork

SIMULATED = frozenset({"simulated"})
LIVE = frozenset({"live"})

clocks = Arena(
    "network/clocks",
    question="How closely can neighbouring clocks in this network be kept together, and by which algorithm and which measurement?",
    metrics=[
        Metric("local_skew", "s", on=SIMULATED, doc="the largest difference of two linked clocks after settling"),
        Metric("local_skew_p99", "s", on=SIMULATED, doc="its 99th percentile over links and time"),
        Metric("global_skew", "s", on=SIMULATED, doc="the largest difference of any two clocks"),
        Metric("weighted_skew", on=SIMULATED, doc="the largest skew of a link over its κ under two-way measurement"),
        Metric("settle_time", "s", on=SIMULATED, better=None, doc="after which no skew exceeds the largest that is judged"),
        Metric("bound_ratio", on=SIMULATED, doc="the largest skew of a link over its bound; that of gcs-two-way where there is no other"),
        Metric("global_bound_ratio", on=SIMULATED, doc="global skew over its bound, likewise"),
        Metric("offset_error_measured", "s", kind="measured", on=LIVE, doc="|offset| found between ranks whose true offset is 0"),
        Metric("offset_error_share", kind="measured", on=LIVE, doc="the same over the one-way delay"),
    ],
    techniques={
        "gcs-two-way": ".gcs_two_way:GcsTwoWay",
        "gcs-one-way": ".gcs_one_way:GcsOneWay",
        "tree": ".tree:Tree",
        "tree-frequency": ".tree_frequency:TreeFrequency",
        "max-flood": ".max_flood:MaxFlood",
        "average": ".average:Average",
        "free": ".free:Free",
    },
    papers={"gcs-two-way": "gradient-clock-sync"},
    baseline="tree",
    tradeoff=("local_skew", "global_skew"),
    repeats=2,
    telling=("*/halves/1%", "*/slope"),
    constants=[
        Constant("band", 1e-5, "", "width of the oscillators' band; crystals with some compensation (chosen)"),
        Constant("period", 1e-4, "s", "between two measurements of a link (the specification's)"),
        Constant("delay", "1 µs, or 500 ns and 5 ns per metre up to 100 m", "", "a switch and a cable (chosen); clusters have their own"),
        Constant("jitter", 0.002, "of the delay", "most that is added to a passage (chosen)"),
        Constant("grain", 1e-9, "s", "granularity of hardware time stamps (chosen)"),
        Constant("uncertainty", 1.0, "of the delay", "what stamps in one direction leave unknown: all of it"),
    ],
)  # fmt: skip

#: Clocks of the smallest ring and of the other shapes, and seconds that are judged.
NODES = {"tiny": 16, "small": 64, "large": 256}
OTHERS = {
    "tiny": {"grid": 16, "geometric": 20, "fat-tree": 16, "dragonfly": 24},
    "small": {"grid": 256, "geometric": 256, "fat-tree": 128, "dragonfly": 72},
    "large": {"grid": 10_000, "geometric": 1000, "fat-tree": 1024, "dragonfly": 264},
}  # fmt: skip
JUDGED_S = {"tiny": 0.2, "small": 2.0, "large": 10.0}
SHAPES = ("ring", "ring-4x", "grid", "geometric", "fat-tree", "dragonfly")
RINGS = ("ring-2x", "ring-8x", "ring-16x")
ASYMMETRIES = (0.1, 0.01, 0.001)
JITTER, GRAIN = 0.002, 1e-9
#: Bursts and exchanges per burst between live ranks.
EXCHANGES = {"few": 20, "many": 200}
TINY = {"ring/halves/1%", "grid/slope", "geometric/halves/1%", "ring/reveal", "grid/declared-tenfold", "live-threads-few"}


@clocks.cases
def cases(scale: str) -> Iterator[Case]:
    """Shapes, asymmetries and adversaries; rings of growing size; wrong data sheets; and live ranks of this machine."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    for shape in SHAPES:
        for share in ASYMMETRIES:
            rings = {"rings"} if shape.startswith("ring") and share == 0.01 else set()
            yield _case(f"{shape}/halves/{100 * share:g}%", scale, shape, {"graph"} | rings, asymmetry=share)
        yield _case(f"{shape}/slope", scale, shape, {"graph"}, rates="slope")
    for shape in ("ring", "grid"):
        yield _case(f"{shape}/end", scale, shape, {"graph"}, rates="end")
        yield _case(f"{shape}/reveal", scale, shape, {"graph"}, rates="end", delays="reveal")
        yield _case(f"{shape}/random", scale, shape, {"graph"}, rates="random", delays="random")
    for shape in RINGS:
        yield _case(f"{shape}/halves/1%", scale, shape, {"rings"})
    for shape in ("ring", "grid", "geometric", "dragonfly"):
        yield _case(f"{shape}/declared-third", scale, shape, {"misfit"}, declared=1 / 3)
        yield _case(f"{shape}/declared-tenfold", scale, shape, {"misfit"}, declared=10.0)
        yield _case(f"{shape}/runaway", scale, shape, {"misfit"}, runaway=True)
    for backend in ("mpi", "threads"):
        for name, exchanges in EXCHANGES.items():
            bursts, seconds = (3, 0.1) if scale == "tiny" else (8, 1.0)
            what = {"backend": backend, "exchanges": exchanges, "bursts": bursts, "seconds": seconds}
            yield Case(f"live-{backend}-{name}", _live, what, frozenset({"live", "measured"}))


def _case(name: str, scale: str, shape: str, kinds: set[str], **facts: Any) -> Case:
    kind, _, times = shape.partition("-") if shape.startswith("ring") else (shape, "", "")
    nodes = NODES[scale] * int(times[:-1] or 1) if kind == "ring" else OTHERS[scale][kind]
    what = {
        "shape": kind, "nodes": nodes, "asymmetry": 0.01, "rates": "halves", "delays": "bias", "declared": 1.0, "runaway": False,
        "judged_s": JUDGED_S[scale], **facts,
    }  # fmt: skip
    return Case(name, _built_in, what, frozenset(kinds | SIMULATED))


@dataclass(frozen=True)
class Reading:
    """What a graph's clocks and links do."""

    oscillators: str = parameter("", "a table of node, offset_ppm and stability; without it frequencies are drawn from the band", file=True)
    rho: float = parameter(1e-5, "width of the oscillators' band", range=(1e-12, 1e-2))
    period: float = parameter(1e-4, "seconds between two measurements of a link", range=(1e-6, 100.0))
    grain: float = parameter(1e-9, "granularity of time stamps in seconds", range=(0.0, 1.0))
    asymmetry: float = parameter(0.01, "share of its delay by which a link's directions may differ, unless links say", range=(0.0, 1.0))
    unit: float = parameter(1.0, "for recorded exchanges: seconds per unit of the stamps, such as 1e-9", range=(1e-15, 1.0))
    rates: str = parameter("halves", "how frequencies are chosen", choices=("halves", "slope", "end", "random"))
    delays: str = parameter("random", "how delays and asymmetries are chosen", choices=("random", "bias", "reveal"))
    seconds: float = parameter(2.0, "seconds that are judged after settling", range=(1e-3, 3600.0))


@clocks.read(Reading)
def read(path: Path, how: Reading) -> tuple[ClockNetwork, Exchanges | None, Any]:
    """Reads a graph (`node_a,node_b,delay_s`), a cluster file, or recorded exchanges (`local,remote,t1,t2,t3,t4`)."""
    from .graph.network import ClockNetwork
    from .readers.exchanges import read_exchanges
    from .readers.graphs import is_graph, read_graph, read_oscillators
    from .simulation.oscillators import Oscillators

    exchanges = None
    if path.suffix == ".toml":
        from armillary.cluster import load

        network = ClockNetwork.from_cluster(load(path))
        network = network.with_links(asymmetry=how.asymmetry * network.delay, jitter=JITTER * network.delay)
    elif is_graph(path):
        network = read_graph(path)
    else:
        exchanges = read_exchanges(path, unit_s=how.unit, asymmetry=how.asymmetry)
        network = exchanges.network
    found = read_oscillators(how.oscillators, network) if how.oscillators else Oscillators(how.rho)
    _own_work(network, found, how)  # It refuses what cannot be played.
    return network, exchanges, found


@clocks.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The network as one case."""
    network = loaded[0]
    settings = {name: getattr(how, name) for name in Reading.__dataclass_fields__ if name != "oscillators"}
    facts = {"nodes": network.nodes, "links": network.links, "how": settings}
    yield Case(name, _own, facts, frozenset({"file"}) | SIMULATED)


@clocks.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two racks with a slow link between them, and the frequencies of their clocks."""
    rows = ["node_a,node_b,delay_s,asymmetry_s,jitter_s"]
    names = [f"{rack}{i}" for rack in "ab" for i in range(4)]
    rows += [f"{rack}{i},{rack}{i + 1},6.0e-7,1.2e-8,2.0e-9" for rack in "ab" for i in range(3)]
    rows += ["a0,b0,2.5e-6,1.0e-7,2.0e-8", "a3,b3,2.7e-6,1.0e-7,2.0e-8"]
    (folder / "links.csv").write_text("\n".join(rows) + "\n")
    ppm = [0.3, -1.2, 2.0, 0.0, 4.1, 3.3, 2.8, 3.9]
    lines = ["node,offset_ppm,stability", *(f"{name},{x},tcxo" for name, x in zip(names, ppm))]
    (folder / "oscillators.csv").write_text("\n".join(lines) + "\n")
    return folder / "links.csv", {"oscillators": str(folder / "oscillators.csv"), "rates": "random", "seconds": "0.1"}


@clocks.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops on three clocks."""
    if "live" in case.kinds:
        return
    from .graph.built_in import shaped
    from .simulation.play import play
    from .workload import ClockWork

    play(ClockWork(shaped("line", 3), settle_s=0.001, judged_s=0.001), technique)


@clocks.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the clocks, or measures live ones."""
    if "live" in case.kinds:
        return _measured(technique, case)
    from .gcs_two_way import GcsTwoWay
    from .simulation.play import play

    work: ClockWork = case.workload
    played = play(work, technique)
    bounds = technique.bounds(work) or GcsTwoWay().bounds(work)
    values = {
        "local_skew": played.local_skew, "local_skew_p99": played.local_skew_p99, "global_skew": played.global_skew,
        "weighted_skew": played.weighted_skew(), "settle_time": played.settle_s,
        "bound_ratio": float((played.links / bounds.local_skew).max()), "global_bound_ratio": played.global_skew / bounds.global_skew,
    }  # fmt: skip
    made = [Artifact.table("course", [{"seconds": float(t), "local_skew": float(x)} for t, x in zip(*played.course)])]
    if hasattr(technique, "budget"):
        made.append(Artifact.table("error_budget", technique.budget(work).table()))
    if "file" in case.kinds and case.loaded[1] is not None:
        made.append(Artifact.table("measured_links", list(case.loaded[1].rows)))
    worst = played.links.argsort()[::-1][:50]
    named = [
        {"a": work.network.name(int(work.network.a[k])), "b": work.network.name(int(work.network.b[k])), "skew": float(played.links[k])}
        for k in worst
    ]
    return Outcome(values, [*made, Artifact.table("worst_links", named)])


def _measured(technique: Any, case: Case) -> Outcome:
    """Aligns two ranks of this machine, which share a clock, so that their true offset is 0."""
    from armillary import comm

    from .gcs_two_way import GcsTwoWay

    if not isinstance(technique, GcsTwoWay):
        raise NotForThisCase("measures live links in both directions with gcs-two-way alone")
    work: dict[str, Any] = case.workload
    lacking = comm.backends()[work["backend"]]
    if lacking:
        raise NotForThisCase(lacking)
    program = "armillary.network.clocks.alignment.live:measured"
    # Of several MPI libraries the first one found is measured.
    library = {"library": comm.libraries()[0].name} if work["backend"] == "mpi" else {}
    how = {"ranks": 2, "backend": work["backend"], **library}
    found = comm.run(program, work["bursts"], work["exchanges"], work["seconds"], **how).values[0]
    error = abs(found["offset"][1])
    return Outcome({"offset_error_measured": error, "offset_error_share": error / found["delay"][1]})


@clocks.answer
def answer(result: Result) -> str:
    """Says who keeps neighbours closest, by how much, and what gcs-two-way promises."""
    if "local_skew" not in result.metrics:
        return "Ask for the metric local_skew to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "local_skew", without={"free"}))}
    if not ranked:
        return "No technique could run any of the cases."
    winners = {case: next(iter(found)) for case, found in ranked.items()}
    names = list(winners.values())
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, name in winners.items() if name == best]
    worst = max(ranked[case][best] for case in won)
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    said = f"{best} keeps neighbours closest on {where}, within {_time(worst)}"
    lost = list(dict.fromkeys(name for name in names if name != best))
    said += (f"; elsewhere it is {listed(lost)}" if lost else "") + "."
    bound = {case: found["gcs-two-way"] for case, found in ranked.items() if "gcs-two-way" in found}
    if bound:
        low, high = min(bound.values()), max(bound.values())
        said += f" gcs-two-way keeps them within {_time(low) if low == high else f'{_time(low)} to {_time(high)}'}"
        broken = [case for case in bound if (result.medians("gcs-two-way", "bound_ratio").get(case) or 0) > 1]
        said += f", and beyond its bound on {listed(broken)}." if broken else ", and never beyond its bound."
    return said


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-12:.3g} ps"


@clocks.plots
def plots(result: Result) -> Sequence[Any]:
    """Skew by case, and by the size of rings."""
    drawn: list[Any] = []
    if "local_skew" in result.metrics:

        def rings(case: str, facts: Any) -> tuple[str, float] | None:
            return ("rings", float(facts["parameters"]["nodes"])) if "rings" in facts["kinds"] else None

        title = "Skew of neighbours by the size of a ring"
        drawn += result.panels(title, "local_skew", rings, x="clocks", log_x=True, log_y=True, least_points=2)
        drawn += result.panels("Skew of neighbours", "local_skew", log_y=True)
    if "global_skew" in result.metrics:
        drawn += result.panels("Skew of any two clocks", "global_skew", log_y=True)
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> ClockWork:
    from .graph.built_in import shaped
    from .simulation.oscillators import oscillators
    from .workload import ClockWork, settled

    p = case.parameters
    network = shaped(p["shape"], p["nodes"], rng)
    network = network.with_links(asymmetry=p["asymmetry"] * network.delay, jitter=JITTER * network.delay)
    return settled(ClockWork(
        network, oscillators("tcxo", rho=1e-5, walk=1e-8), grain=GRAIN, declared=p["declared"], rates=p["rates"], delays=p["delays"],
        judged_s=p["judged_s"], runaway=p["runaway"], seed=case.seed32("clocks"),
    ))  # fmt: skip


def _own(case: Case, rng: np.random.Generator) -> ClockWork:
    from dataclasses import replace

    network, _, found = case.loaded
    return replace(_own_work(network, found, Reading(**case.parameters["how"])), seed=case.seed32("clocks"))


def _own_work(network: ClockNetwork, found: Any, how: Reading) -> ClockWork:
    from .workload import ClockWork, settled

    return settled(
        ClockWork(network, found, how.period, how.grain, rates=how.rates, delays=how.delays, judged_s=max(how.seconds, how.period)), 10.0
    )


def _live(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)
