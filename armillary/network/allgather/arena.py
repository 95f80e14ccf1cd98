"""Which neighbourhood allgather is fastest for this graph of ranks, this size of blocks and this machine?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .execution.socket import Planned
    from .planning.schedule import Schedule
    from .workload import Work

_SIMULATED, _MPI, _PLANNING = frozenset({"simulated"}), frozenset({"mpi"}), frozenset({"planning"})

allgather = Arena(
    "network/allgather",
    question="My ranks gather data from few neighbours: which neighbourhood allgather is fastest for this graph, size and machine?",
    metrics=[
        Metric("time", "us", on=_SIMULATED, doc="one call, from the start of all ranks to the end of the last"),
        Metric("spmm_time", "us", on=frozenset({"spmm"}), doc="one call, and the product of the slowest rank by its memory"),
        Metric("time_measured", "us", kind="measured", on=_MPI, doc="one call on the slowest rank, as the median of the rounds"),
        Metric(
            "over_native", "x", kind="measured", on=_MPI,
            doc="over Neighbor_allgatherv of the library in the same rounds of the same ranks, as the median of the ratios",
        ),
        Metric("inter_node_bytes", "B", kind="modelled", on=_SIMULATED, doc="the most that a node sends to others"),
        Metric("inter_node_messages", kind="modelled", on=_SIMULATED, doc="the most that a node sends to others"),
        Metric("setup", "ms", kind="measured", on=_PLANNING, doc="CPU time to plan"),
        Metric(
            "promise_error", "%", on=_SIMULATED, scale="difference",
            doc="distance of the plan's own time from `time`; auto promises what it chose by",
        ),
        Metric("regret", "%", on=frozenset({"judged"}), scale="difference", doc="time over that of the best technique"),
        Metric(
            "no_worse", better="higher", on=frozenset({"stress"}), scale="difference",
            doc="1 if at most 5 % slower than the better one of direct and node-aware, else 0",
        ),
        Metric("paths", better=None, kind="modelled", on=_SIMULATED, doc="paths per direction; 0 for plans without paths"),
    ],
    techniques={
        "direct": ".direct:Direct",
        "node-aware": ".node_aware:NodeAware",
        "common-neighbour": ".common_neighbour:CommonNeighbour",
        "distance-halving": ".distance_halving:DistanceHalving",
        "cascade": ".cascade:Cascade",
        "auto": ".auto:Auto",
    },
    papers={"cascade": "cascade"},
    baseline="direct",
    # A measured unit already holds many rounds in which the techniques take turns, and the simulated kinds have many cases.
    repeats=1,
    telling=[
        "random:0.1-64B", "random:0.5-4KiB", "moore:2,3-64B", "spmm-banded-4KiB", "shuffled-moore:2,3-4KiB", "one-rank-random:0.5-64B",
        "mpi-2-64B", "plan-random:0.1",
    ],
    constants=[
        Constant("piece", 60e-9, "s", "to find and copy one piece of memory, beside its bytes (chosen)"),
        Constant("large message", 65536, "B", "from which what a node hands on is dealt to up to 4 of its ranks (chosen)"),
        Constant("multiplication", 12, "B", "per entry of the matrix; 8 B per number of the dense blocks, each moved once (chosen)"),
    ],
)  # fmt: skip

SIZES = {"8B": 8, "64B": 64, "1KiB": 1 << 10, "4KiB": 1 << 12, "32KiB": 1 << 15, "64KiB": 1 << 16, "256KiB": 1 << 18, "1MiB": 1 << 20}
GRAPHS = ("random:0.1", "random:0.5", "moore:2,1", "moore:2,3", "spmm-banded")
DENSITIES = ("0.05", "0.1", "0.3", "0.5", "0.7")
PAPER = (
    *(f"random:{density}" for density in DENSITIES), *(f"moore:{d},{r}" for d in (2, 3) for r in range(1, 6)),
    "spmm-banded", "spmm-rmat", "spmm-poisson",
)  # fmt: skip
PAPER_SIZES = ("8B", "1KiB", "32KiB", "1MiB")
#: The machines of the paper's cases, with nodes and ranks per node at the large scale.
MACHINES = {"hdr100": ("infiniband-hdr100", 32, 32), "slingshot": ("slingshot-200", 64, 64)}
#: Draws of the graph that is rare and of long blocks.
DRAWS = 4
TINY = {"random:0.5-4KiB", "moore:2,3-64B", "spmm-banded-64B", "shuffled-random:0.5-4KiB", "one-rank-random:0.5-64B", "plan-random:0.1"}
#: Ranks, sizes and rounds of the measured cases; four ranks on two cores take turns, which takes milliseconds per call.
MPI = ((2, "64B", 300), (2, "64KiB", 300), (4, "64B", 20), (4, "64KiB", 20))
#: Graphs of more edges than this are not simulated message by message as flows, but by the compiled loop.
MOST_FLOWS = 60_000
SHORT = 4096


@allgather.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Graphs on 8 nodes of 8 ranks, in order and shuffled; rare long blocks; nodes of one rank; the paper's sizes; MPI here; planning."""
    return (case for case in every_case(scale, cluster) if scale != "tiny" or case.name in TINY)


def every_case(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """All cases, the tiny scale's too."""
    shape = (
        {"machine": "infiniband-hdr100", "nodes": 4, "per_node": 4}
        if scale == "tiny"
        else {"machine": "infiniband-hdr100", "nodes": 8, "per_node": 8}
    )
    for shuffled in (False, True):
        for graph in GRAPHS:
            for size in ("64B", "4KiB", "256KiB"):
                kinds = {"shuffled", "stress"} if shuffled else {"default"}
                yield _case(f"{'shuffled-' if shuffled else ''}{graph}-{size}", graph, size, shape, kinds | {"judged"}, cluster, shuffled)
    for draw in range(1, DRAWS + 1):
        yield _case(f"random:0.05-1MiB-{draw}", "random:0.05", "1MiB", shape, {"stress", "judged"}, cluster, draw=draw)
    wide = {"machine": "slingshot-200", "nodes": 16 if scale == "tiny" else 64, "per_node": 1}
    for graph in ("random:0.5", "moore:2,3"):
        for size in ("64B", "4KiB"):
            yield _case(f"one-rank-{graph}-{size}", graph, size, wide, {"one-rank", "judged"}, cluster)
    for name, (machine, nodes, per_node) in MACHINES.items():
        whole = {"machine": machine, "nodes": nodes, "per_node": per_node} if scale == "large" else {**shape, "machine": machine}
        for graph in PAPER:
            for size in PAPER_SIZES:
                yield _case(f"paper-{name}-{graph}-{size}", graph, size, whole, {"paper"}, cluster)
    if scale != "tiny":
        for ranks, size, rounds in MPI:
            yield Case(
                f"mpi-{ranks}-{size}", _as_said, {"ranks": ranks, "bytes": SIZES[size], "rounds": rounds}, frozenset({"mpi", "measured"})
            )
    nodes, per_node = {"tiny": (4, 4), "small": (32, 32), "large": (64, 64)}[scale]
    facts = {"graph": "random:0.1", "bytes": SHORT, "nodes": nodes, "per_node": per_node, "machine": "slingshot-200"}
    yield Case("plan-random:0.1", _built_in, facts, frozenset({"planning", "measured"}), cluster=cluster)


def _case(
    name: str,
    graph: str,
    size: str,
    shape: Mapping[str, Any],
    kinds: set[str],
    cluster: Cluster | None,
    shuffled: bool = False,
    draw: int = 1,
) -> Case:
    family = graph.partition(":")[0].partition("-")[0]
    nbytes = SIZES[size]
    kinds = kinds | {"simulated", family} | ({"short"} if nbytes <= SHORT and "one-rank" not in kinds else set())
    facts = {"graph": graph, "bytes": nbytes, **shape, "shuffled": shuffled, "draw": draw}
    return Case(name, _built_in, facts, frozenset(kinds), cluster=cluster)


def _built_in(case: Case, rng: np.random.Generator) -> Work:
    from .workload import built_in

    return built_in(case, rng)


def _as_said(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)


@dataclass(frozen=True)
class Reading:
    """How a graph is read, where its ranks run, and how large blocks are."""

    ranks: int = parameter(0, "ranks; 0 for as many as a graph names, and for 64 of a matrix", range=(0, 65536))
    per_node: int = parameter(8, "ranks of a node", range=(1, 65536))
    bytes: tuple[int, ...] = parameter(
        (64, 4096, 262144), "bytes of a block, one case for each, if the file is a graph", range=(0, 1 << 36)
    )
    columns: tuple[int, ...] = parameter((1, 16, 256), "dense columns, one case for each, if the file is a matrix", range=(1, 1 << 20))
    machine: str = parameter("infiniband-hdr100", "the cluster: a preset or a file", file=True)

    def validate(self) -> None:
        """There is at least one size."""
        for name in ("bytes", "columns"):
            if not getattr(self, name):
                raise InputError("found nothing; expected at least one number", where=f"--{name}")


@allgather.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads a sparse matrix (`.mtx`), edges as a table (`source,destination`), or compressed rows (`.npz` with `indptr`, `indices`)."""
    from .graphs.files import read_graph
    from .workload import own

    graph, matrix = read_graph(path, how.ranks)
    for number in range(len(how.bytes if matrix is None else how.columns)):
        own(graph, matrix, how, number)  # says what is wrong before anything runs
    return graph, matrix, how


@allgather.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """One case per size."""
    graph, matrix, _ = loaded
    what, sizes = ("B", how.bytes) if matrix is None else (" columns", how.columns)
    for number, size in enumerate(sizes):
        kinds = {"simulated", "file"} | ({"spmm"} if matrix is not None else set())
        facts = {
            "ranks": graph.ranks,
            "nodes": -(-graph.ranks // how.per_node),
            "per_node": how.per_node,
            "edges": graph.edges,
            "number": number,
        }
        yield Case(f"{name}-{size}{what}", _own, facts, frozenset(kinds))


def _own(case: Case, rng: np.random.Generator) -> Work:
    from .workload import own

    graph, matrix, how = case.loaded
    return own(graph, matrix, how, int(case.parameters["number"]))


@allgather.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the matrix of a 5-point grid of 12 × 12 points as MatrixMarket."""
    side, lines = 12, []
    for row in range(side * side):
        for step, there in ((1, row % side + 1 < side), (side, row + side < side * side)):
            if there:
                lines.append(f"{row + step + 1} {row + 1}\n")
        lines.append(f"{row + 1} {row + 1}\n")
    file = folder / "grid.mtx"
    file.write_text(f"%%MatrixMarket matrix coordinate pattern symmetric\n{side * side} {side * side} {len(lines)}\n" + "".join(lines))
    return file, {"ranks": "16", "per-node": "4", "columns": "1,64"}


@allgather.warm_up
def warm_up(technique: Planned, case: Case) -> None:
    """Compiles the loops of a plan before its time is taken."""
    if "planning" in case.kinds:
        import numpy as np

        from .graphs.built_in import random
        from .planning.prices import prices_of
        from .planning.problem import problem

        small = problem(random(16, 0.3, np.random.default_rng(0)), 4, 64)
        technique.schedule(small, prices_of("infiniband-hdr100", small))


@allgather.run
def run(technique: Planned, case: Case) -> Outcome:
    """Plans, and carries the plan out in simulated time; or times planning; or times the plan on MPI processes."""
    if "mpi" in case.kinds:
        return _measured(technique, case)
    if "planning" in case.kinds:
        return _planned(technique, case)
    work: Work = case.workload
    schedule = _schedule(technique, work)
    seconds, timeline = _seconds(schedule, work, case)
    promise = _promise(technique, schedule, work)
    values = {
        "time": 1e6 * seconds,
        "inter_node_bytes": float(schedule.inter_node_bytes),
        "inter_node_messages": float(schedule.inter_node_messages),
        "promise_error": 100 * abs(promise - seconds) / seconds if seconds else 0.0,
        "paths": float((schedule.chosen or {}).get("paths", 0)),
    }
    if "spmm" in case.kinds:
        values["spmm_time"] = 1e6 * (seconds + work.multiply_s())
    if "judged" in case.kinds:
        times = case.once(_all_times)
        values["regret"] = 100 * (seconds / min(times.values()) - 1)
        if "stress" in case.kinds:
            values["no_worse"] = float(seconds <= min(times["direct"], times["node-aware"]) / 0.95)
    facts = [{"why": schedule.explain(), "messages": schedule.messages, "steps": schedule.steps, "promised_us": 1e6 * promise}]
    return Outcome(values, [Artifact.table("plan", facts), *timeline])


def _schedule(technique: Planned, work: Work) -> Schedule:
    from .planning.prices import prices_of

    return technique.schedule(work.problem, prices_of(work.cluster, work.problem))


def _seconds(schedule: Schedule, work: Work, case: Case, timelines: bool = True) -> tuple[float, list[Artifact]]:
    """The time of one call, and its timeline where it is small: by virtual ranks with flows, or by the compiled loop for large work."""
    from .execution.replay import replay
    from .execution.simulated import chrome, simulated
    from .planning.prices import prices_of

    graph = work.problem.graph
    if "paper" in case.kinds or graph.edges > MOST_FLOWS:
        return float(replay(schedule, prices_of(work.cluster, work.problem)).max()), []
    small = timelines and ("file" in case.kinds or case.name == "moore:2,3-64B") and graph.edges <= 4000
    seconds, line = simulated(schedule, work.cluster, timeline=small)
    return seconds, [Artifact("timeline.json", "application/json", chrome(line))] if small else []


def _promise(technique: Planned, schedule: Schedule, work: Work) -> float:
    from .planning.prices import prices_of

    return technique.promise(schedule, prices_of(work.cluster, work.problem))


def _all_times(case: Case) -> dict[str, float]:
    """The simulated seconds of the five techniques with default parameters."""
    found = {}
    for name in allgather.techniques:
        if name != "auto":
            technique: Any = allgather.make(name)
            found[name] = _seconds(_schedule(technique, case.workload), case.workload, case, timelines=False)[0]
    return found


def _planned(technique: Planned, case: Case) -> Outcome:
    from time import process_time

    from .planning.prices import prices_of

    work: Work = case.workload
    prices = prices_of(work.cluster, work.problem)
    # What a problem works out once belongs to the plan's time, so the plan gets a problem that nothing has touched.
    from .planning.problem import problem

    fresh = problem(work.problem.graph, work.problem.node_of, work.problem.block_bytes)
    start = process_time()
    technique.schedule(fresh, prices)
    return Outcome({"setup": 1e3 * (process_time() - start)})


#: What the last job measured and nobody has asked for yet, by case, seed and repeat.
_UNASKED: dict[tuple[str, int, int], dict[str, Any]] = {}


def _measured(technique: Planned, case: Case) -> Outcome:
    """The technique's rounds on MPI processes. One job measures all techniques, and a second request measures again."""
    from armillary.arena import canonical
    from armillary.comm import backends

    from .execution.measured import measure

    lacks = backends()["mpi"]
    if lacks:
        raise NotForThisCase(f"backend mpi: {lacks}")
    key = (case.digest, case.seed, case.repeat)
    mine = f"{type(technique).__name__} {canonical(technique)}"
    waiting = _UNASKED.get(key, {})
    if mine not in waiting:
        usual: list[Any] = [allgather.make(name) for name in allgather.techniques]
        known = {f"{type(one).__name__} {canonical(one)}": one for one in usual}
        waiting = measure(known if mine in known else {mine: technique}, **case.workload)
        _UNASKED.clear()
        _UNASKED[key] = waiting
    found = waiting.pop(mine)
    return Outcome({"time_measured": found.median_us, "over_native": found.over_native}, noisy=found.noisy)


@allgather.answer
def answer(result: Result) -> str:
    """Names the fastest technique of each kind of case, and says what auto loses."""
    wins: dict[str, int] = {}
    gains = []
    for case in result.cases:
        best = result.best(case, "time", without=["auto"])
        if best is None:
            continue
        wins[best] = wins.get(best, 0) + 1
        gain = result.ratio(case, "time", best, "direct")
        if gain is not None:
            gains.append((gain, case, best))
    if not wins:
        return "No case was simulated."
    first = sorted(wins, key=lambda name: -wins[name])
    said = [", ".join(f"{name} is fastest on {wins[name]} of {sum(wins.values())} cases" for name in first[:3]) + "."]
    if gains:
        gain, case, best = max(gains)
        if gain > 1.005:
            said.append(f"The most over direct messages is {gain:.1f}× by {best} ({case}).")
    regret = result.medians("auto", "regret") if "auto" in result.techniques else {}
    if regret:
        said.append(f"Auto is at most {max(regret.values()):.0f} % slower than the best.")
    return " ".join(said)


@allgather.plots
def plots(result: Result) -> Sequence[Any]:
    """Time over the size of blocks, one panel per graph."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, float | str] | None:
        known = facts["parameters"]
        if "simulated" not in facts["kinds"]:
            return None
        if "graph" not in known:
            return ("your graph", case)
        return case.rpartition("-")[0] if known["draw"] == 1 else case, float(known["bytes"])

    return result.panels("Time of one call", "time", place, x="bytes of a block", y="us", log_x=True, log_y=True)
