"""Which remote features should a trainer of a graph neural network keep, and when should it renew them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .graphs.graph import Graph
    from .graphs.partitioning import Owners
    from .workload import PrefetchWork

prefetch = Arena(
    "training/prefetch",
    question="Distributed GNN training stalls on remote features: which prefetch and replacement policy suits my partitioned graph and "
    "buffer?",
    metrics=[
        Metric("epoch_s", unit="s", doc="seconds per epoch, those before the first minibatch spread over all epochs"),
        Metric("stall_s", unit="s", scale="difference", doc="seconds per epoch beyond the longest computation of each minibatch"),
        Metric("comm_nodes", doc="remote vertices that were fetched, for replacements and for the first content too, by all trainers"),
        Metric("comm_bytes", unit="B", doc="bytes of their features"),
        Metric("hit_rate", better="higher", scale="difference", doc="share of the remote vertices asked for that was in a buffer"),
        Metric("decision_latency_s", unit="s", better=None, doc="mean seconds until a decision was there; 0 where nobody decides"),
        Metric("replacements", better=None, doc="vertices that took another one's place in a buffer, over all trainers"),
    ],
    techniques={
        "none": ".none:NoPrefetch",
        "static-degree": ".static_degree:StaticDegree",
        "lru": ".lru:Lru",
        "periodic": ".periodic:Periodic",
        "classifier": ".classifier:Classifier",
        "rudder": ".rudder:Rudder",
        "oracle": ".oracle:Oracle",
    },
    papers={"rudder": "rudder"},
    baseline="none",
    tradeoff=("epoch_s", "comm_nodes"),
    repeats=1,
    telling=("drift-sbm-4-5", "stationary-rmat-4-25", "shuffled-products-8-5"),
    constants=[
        Constant("request", 1e-3, "s", "per machine that a fetch contacts (ours)"),
        Constant("features", 0.25e9, "B/s", "per trainer, over remote procedure calls (ours; the order of DistDGL's epoch times)"),
        Constant("computation", 0.05, "of fp32 peak", "aggregation of sparse neighbours (ours)"),
        Constant("minibatch", 10e-3, "s", "launches, all-reduce and optimizer (ours)"),
        Constant("controller", 1.5, "s", "median latency of a small local language model (ours)"),
        Constant("stands for", "vertices × 2²¹ / vertices", "", "bytes and operations are those of 2 million vertices, batch 2,048"),
    ],
)  # fmt: skip

#: Each graph with its parts and the percentage of the halo that a buffer holds.
SETTINGS = (("rmat", 4, 25), ("sbm", 4, 5), ("sbm", 8, 25), ("products", 8, 5))
ORDERS = ("drift", "stationary", "shuffled")
TINY = ("drift-sbm-4-5", "drift-rmat-4-25", "stationary-rmat-4-25", "shuffled-sbm-8-25", "shuffled-products-8-5")
#: Binary logarithm of the vertices, and minibatches.
SIZES = {"tiny": (12, 60), "small": (17, 240), "large": (20, 200)}
#: Of the graph that a built-in one stands for: binary logarithm of its vertices, and its seeds per minibatch and trainer.
WHOLE, WHOLE_BATCH = 21, 2048
FEATURE_BYTES = {"rmat": 512, "sbm": 1024, "products": 400}
MACHINE = "perlmutter-gpu"


@prefetch.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Three orders of training vertices on three graphs, with 4 and 8 trainers and two sizes of buffer."""
    exponent, minibatches = SIZES[scale]
    stands_for = 1 << (WHOLE - exponent)
    for order in ORDERS:
        for graph, parts, percent in SETTINGS:
            name = f"{order}-{graph}-{parts}-{percent}"
            if scale == "tiny" and name not in TINY:
                continue
            facts = {
                "graph": graph, "exponent": exponent, "parts": parts, "buffer": percent / 100, "order": order, "minibatches": minibatches,
                "stands_for": stands_for, "batch": WHOLE_BATCH // stands_for, "feature_bytes": FEATURE_BYTES[graph],
            }  # fmt: skip
            yield Case(name, _built_in, facts, frozenset({order}), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a graph is partitioned, sampled and trained on."""

    partition: str = parameter("", "a file with one part per line; without it, the graph is partitioned", file=True)
    parts: int = parameter(4, "trainers, each with a part of the graph, if no partition is given", range=(2, 1024))
    partitioner: str = parameter("greedy", "who partitions it: our greedy stream, or METIS (pymetis)", choices=("greedy", "metis"))
    buffer: float = parameter(0.25, "share of its halo that a trainer's buffer holds", range=(1e-6, 1.0))
    batch: int = parameter(1000, "seeds per minibatch and trainer", range=(1, 1 << 20))
    fan_outs: tuple[int, ...] = parameter((10, 25), "neighbours sampled per vertex, from the first layer to the last")
    minibatches: int = parameter(240, "minibatches of each trainer", range=(2, 100_000))
    train_share: float = parameter(0.08, "share of the vertices that is trained on", range=(1e-6, 1.0))
    order: str = parameter("shuffled", "how training vertices come", choices=("drift", "shuffled", "stationary"))
    feature_bytes: int = parameter(400, "bytes of a vertex's features", range=(1, 1 << 24))
    machine: str = parameter(MACHINE, "the cluster, of which the first GPU is used: a preset or a file", file=True)
    request_ms: float = parameter(0.0, "milliseconds per machine that a fetch contacts; 0 takes the arena's", range=(0, 1e6))
    rate_gb: float = parameter(0.0, "GB of features per second and trainer; 0 takes the arena's", range=(0, 1e6))
    compute_ms: float = parameter(0.0, "milliseconds of computation per minibatch; 0 models them", range=(0, 1e6))

    def validate(self) -> None:
        """Fan-outs are few and positive."""
        if not 1 <= len(self.fan_outs) <= 8 or not all(1 <= fan_out <= 10_000 for fan_out in self.fan_outs):
            found = ", ".join(map(str, self.fan_outs[:8])) or "none"
            raise InputError(f"found {found}; expected one to eight whole numbers from 1 to 10,000", where="--fan-outs")


@prefetch.read(Reading)
def read(path: Path, how: Reading) -> tuple[Graph, Owners]:
    """Reads a graph (an edge list, `.npz`, `.mtx` or METIS's `.graph`) and its partition, or partitions it."""
    from .graphs.partitioning import partition
    from .readers.graph_files import read_graph
    from .readers.partition_files import read_partition
    from .simulation.machine import Machine

    Machine.of(how.machine)
    graph = read_graph(path)
    owner = read_partition(how.partition, graph.vertices) if how.partition else partition(graph, how.parts, how.partitioner)
    if int(owner.max()) == 0:
        raise InputError("found one part; expected at least two, because nothing is remote otherwise", where=how.partition or str(path))
    return graph, owner


@prefetch.own_cases
def own_cases(loaded: tuple[Graph, Owners], name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    graph, owner = loaded
    facts = {"vertices": graph.vertices, "edges": graph.edges, "parts": int(owner.max()) + 1, "buffer": how.buffer, "batch": how.batch,
             "fan_outs": list(how.fan_outs), "minibatches": how.minibatches, "train_share": how.train_share, "order": how.order,
             "feature_bytes": how.feature_bytes, "machine": how.machine, "request_ms": how.request_ms, "rate_gb": how.rate_gb,
             "compute_ms": how.compute_ms}  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file", how.order}))


@prefetch.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a grid of 24 × 24 vertices with a few long edges, and its partition into four quarters."""
    side = 24
    rows = ["src,dst"]
    for x in range(side):
        for y in range(side):
            v = x * side + y
            rows += [f"{v},{v + 1}"] if y + 1 < side else []
            rows += [f"{v},{v + side}"] if x + 1 < side else []
            rows += [f"{v},{(7 * v + 5) % (side * side)}"] if v % 3 == 0 else []
    path = folder / "edges.csv"
    path.write_text("\n".join(rows) + "\n")
    parts = [2 * (2 * x // side) + 2 * y // side for x in range(side) for y in range(side)]
    (folder / "parts.txt").write_text("\n".join(map(str, parts)) + "\n")
    return path, {
        "partition": str(folder / "parts.txt"),
        "batch": "4",
        "minibatches": "80",
        "buffer": "0.2",
        "fan_outs": "3,5",
        "feature_bytes": "200000",
    }


@prefetch.run
def run(technique: Any, case: Case) -> Outcome:
    """Replays the case's minibatches with the technique's buffers."""
    from .simulation.replay import metrics, replay

    work: PrefetchWork = case.workload
    done = replay(work, technique.caches(work))
    artifacts = [Artifact.quantiles("step", done.step_s, "s")]
    if done.decisions:
        artifacts.append(Artifact.table("decisions", list(done.decisions)))
    return Outcome(metrics(work, done), artifacts)


@prefetch.answer
def answer(result: Result) -> str:
    """Names the technique with the shortest epochs, by how much, and how far the best controller could still go."""
    if "epoch_s" not in result.metrics:
        return "Ask for the metric epoch_s to get an answer."
    oracles = {name for name in result.techniques if name in prefetch.techniques and prefetch.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "epoch_s", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, s in found.items() if s <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    # Among techniques that are the best equally often, the simplest one stands first in the arena's list.
    best = max((t for t in [*prefetch.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the shortest epochs on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    gains = [ratio for case in won if best != "none" and (ratio := result.ratio(case, "epoch_s", best, "none"))]
    if gains:
        low, high = f"{min(gains):.2f}", f"{max(gains):.2f}"
        said += f", {low if low == high else f'{low} to {high}'} times as fast as without a buffer"
    others = sorted({t for case in won for t in near[case] if t != best})
    if others:
        some = " on some of them" if len(won) > 1 else ""
        said += f" ({listed(others)} {'is' if len(others) == 1 else 'are'} within half a percent{some})"
    lost = [first[0] for first in near.values() if best not in first]
    if lost:
        said += "; elsewhere it is " + listed([f"{name} ({counted(lost.count(name), 'case')})" for name in dict.fromkeys(sorted(lost))])
    return said + "." + _to_gain(result, ranked)


def _to_gain(result: Result, ranked: Mapping[str, Mapping[str, float]]) -> str:
    """What a controller that looks ahead would gain over the static buffer, if both were run."""
    both = [ratio for case in ranked if (ratio := result.ratio(case, "epoch_s", "oracle", "static-degree"))]
    if not both:
        return ""
    if max(both) <= 1.005:
        return " A controller that looks ahead would gain nothing over static-degree."
    return f" A controller that looks ahead would be at most {max(both):.2f} times as fast as static-degree."


@prefetch.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds per epoch, vertices fetched and hit rates, by case."""
    drawn = []
    for metric, title in (("epoch_s", "Seconds per epoch"), ("comm_nodes", "Remote vertices fetched"), ("hit_rate", "Hit rate")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "hit_rate")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> PrefetchWork:
    from .graphs.built_in import made
    from .graphs.partitioning import greedy
    from .simulation.machine import Machine
    from .workload import sampled_work

    p = case.parameters
    graph = made(p["graph"], p["exponent"], rng)
    machine = Machine.of(case.cluster if case.cluster is not None else MACHINE)
    return sampled_work(
        graph, greedy(graph, p["parts"]), rng, machine=machine, batch=p["batch"], minibatches=p["minibatches"], order=p["order"],
        fraction=p["buffer"], feature_bytes=p["feature_bytes"], stands_for=p["stands_for"],
    )  # fmt: skip


def _own(case: Case, rng: np.random.Generator) -> PrefetchWork:
    from .simulation.machine import Machine
    from .workload import sampled_work

    graph, owner = case.loaded
    p = case.parameters
    machine = Machine.of(p["machine"]).given(p["request_ms"] / 1e3, 1e9 * p["rate_gb"])
    return sampled_work(
        graph, owner, rng, machine=machine, batch=p["batch"], fan_outs=p["fan_outs"], minibatches=p["minibatches"], order=p["order"],
        train_share=p["train_share"], fraction=p["buffer"], feature_bytes=p["feature_bytes"], compute_s=p["compute_ms"] / 1e3,
    )  # fmt: skip
