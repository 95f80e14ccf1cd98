"""Where should a model be cut that is split over edge boxes, a fog server and the cloud, and which node gets the next request?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.llm.serving.requests import Requests

    from .nodes.hierarchy import Hierarchy
    from .nodes.rate import Rate
    from .workload import TierWork

tiers = Arena(
    "serving/tiers",
    question="My model is split over edge boxes, a fog server and the cloud: where should it be cut, and which node gets the next request?",
    metrics=[
        Metric("mean_latency", unit="s", doc="mean time from arrival until the last token is with the user"),
        Metric("p95_latency", unit="s", doc="95 of 100 requests take no longer"),
        Metric("ttft", unit="s", doc="mean time from arrival until the first token is with the user"),
        Metric("gpu_utilisation", better="higher", scale="difference", doc="busy share of all nodes until the last request is done"),
        Metric("replans", better=None, doc="the number of times that the model was cut again"),
        Metric("plan_s", unit="s", kind="measured", doc="time to cut the model once"),
        Metric("decision_us", unit="µs", kind="measured", doc="time to choose a node, per request and tier"),
    ],
    techniques={
        "hyperion": ".hyperion:Hyperion",
        "hyperion-p": ".hyperion_p:HyperionP",
        "hyperion-s": ".hyperion_s:HyperionS",
        "gpipe": ".gpipe:GPipe",
        "heft": ".heft:Heft",
        "edgeshard": ".edgeshard:EdgeShard",
        "all-cloud": ".all_cloud:AllCloud",
        "random": ".random:Random",
    },
    papers={"hyperion": "hyperion"},
    baseline="gpipe",
    tradeoff=("mean_latency", "gpu_utilisation"),
    repeats=1,
    telling=("phi-3-medium/0.6", "phi-3-medium/0.3/long", "llama-3-8b/0.3"),
    constants=[
        Constant("fading", "×0.4, 30 s", "", "the second state of a link, and the mean stay in each state; ours"),
        Constant("others", "U(0, 0.5), 60 s", "", "the share of a device that others take, and how often it is drawn again; ours"),
        Constant("offered load", "ρ", "", "the share of the capacity of the slowest tier when every tier has the same number of blocks"),
        Constant("usable memory", 0.95, "", "the usable share of a device's memory, less 1 GB"),
    ],
)

SECONDS = {"tiny": 40.0, "small": 600.0, "large": 3600.0}
#: Each case has its model, tiers, share of capacity, lengths, and whether nodes batch.
CASES: dict[str, tuple[str, str, float, str, bool]] = {
    **{f"phi-3-medium/{rho}": ("phi-3-medium", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
    "phi-3-medium/0.6/chat": ("phi-3-medium", "mixed", 0.6, "chat", False),
    "phi-3-medium/0.6/conversation": ("phi-3-medium", "mixed", 0.6, "conversation", False),
    "phi-3-medium/0.6/summary": ("phi-3-medium", "mixed", 0.6, "summary", False),
    "phi-3-medium/0.6/idle": ("phi-3-medium", "idle", 0.6, "even", False),
    "phi-3-medium/0.6/equal": ("phi-3-medium", "equal", 0.6, "even", False),
    "phi-3-medium/0.6/batching": ("phi-3-medium", "mixed", 0.6, "even", True),
    **{f"phi-3-medium/{rho}/long": ("phi-3-medium", "mixed", rho, "long", False) for rho in (0.3, 0.45, 0.6, 0.85)},
    **{f"llama-3-8b/{rho}": ("llama-3-8b", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
    **{f"qwen2.5-32b/{rho}": ("qwen2.5-32b", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
}
#: The cases of the tiny scale: each model and each kind of tiers, lengths and nodes once.
TINY = (
    "phi-3-medium/0.6", "phi-3-medium/0.6/chat", "phi-3-medium/0.6/summary", "phi-3-medium/0.6/idle", "phi-3-medium/0.6/equal",
    "phi-3-medium/0.6/batching", "phi-3-medium/0.6/long", "llama-3-8b/0.3", "qwen2.5-32b/0.3",
)  # fmt: skip


@tiers.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Yields three models at several loads, with four kinds of request, on idle or equal tiers, and on nodes that batch."""
    for name, (model, kind, rho, like, batching) in CASES.items():
        if (cluster is not None and kind == "equal") or (scale == "tiny" and name not in TINY):
            continue
        facts = {"model": model, "tiers": kind, "rho": rho, "like": like, "batching": batching}
        facts["seconds"] = SECONDS[scale] / (4 if batching else 1)
        load = {f"rho-{rho}"} if like != "long" and not batching else set()
        kinds = {model, kind, like, "batching" if batching else "one-by-one", *load}
        yield Case(name, _make, facts, frozenset(kinds), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a file of requests is read, and which model and tiers serve it."""

    model: str = parameter("phi-3-medium", "a model that comes with Armillary, a config.json, or a folder that holds one", file=True)
    tiers: str = parameter("tiers-3", "a cluster whose network has the topology tiers: a preset or a file", file=True)
    bandwidth: tuple[str, ...] = parameter((), "files (CSV, Mahimahi) of the links' rates, from the lowest link up", file=True)
    rho: float = parameter(0.0, "stretches the arrivals to this share of what the slowest tier takes; 0 leaves them", range=(0, 10))
    batching: bool = parameter(False, "whether nodes serve several requests at once")
    others: bool = parameter(True, "whether other programs use the nodes too, and links without a file fade")
    limit: int = parameter(0, "the number of requests to read; 0 reads all of them", range=(0, 2**40))


@tiers.read(Reading)
def read(path: Path, how: Reading) -> tuple[Reading, Requests, Hierarchy, list[tuple[Rate, float | None]]]:
    """Reads requests in any form that `armillary.llm` knows."""
    from armillary.cluster import find
    from armillary.llm.serving.requests import Requests

    from .nodes.hierarchy import Hierarchy
    from .nodes.rate import read_rate

    requests = Requests.read(str(path), **({"limit": how.limit} if how.limit else {}))
    loaded = how, requests, Hierarchy.of_cluster(find(how.tiers)), [read_rate(name) for name in how.bandwidth]
    _work(loaded, seed=0)
    return loaded


@tiers.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, whose links fade by its own random stream."""
    yield Case(name, _own, {"model": Path(how.model).name}, frozenset({"file"}))


@tiers.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two requests in the form of the Azure LLM inference traces."""
    file = folder / "requests.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,4\n2023-11-16 18:15:50.99,39,5\n")
    return file, {"model": "llama-3.2-1b"}


@tiers.run
def run(technique: Any, case: Case) -> Outcome:
    """Cuts the model, then sends every request through the tiers."""
    import numpy as np

    from armillary.timing import timed

    from .simulation.serving import serve

    work: TierWork = case.workload
    plan = technique.cut(work.costs, work.mix)
    plan_s = timed(lambda: technique.cut(work.costs, work.mix), min_seconds=0.02, min_calls=1).median
    found = serve(work.costs, plan, technique.dispatcher(work.costs, plan, work.mix), work.requests, work.mix, batching=work.batching)
    latency = found.latency_s
    left = [Artifact.quantiles("latency", latency, "s"), Artifact.timeline(found.perfetto(work.costs.hierarchy))]
    left.append(Artifact.table("plan", plan.table()))
    values = {
        "mean_latency": float(latency.mean()), "p95_latency": float(np.quantile(latency, 0.95)), "ttft": float(found.ttft_s.mean()),
        "gpu_utilisation": found.utilisation, "replans": float(found.replans), "plan_s": plan_s, "decision_us": 1e6 * found.decision_s,
    }  # fmt: skip
    return Outcome(values, left)


@tiers.answer
def answer(result: Result) -> str:
    """Says whether splitting the model pays at all, and what splits it best."""
    first = result.first_places("mean_latency")
    if not first:
        return "Nothing was run to the end."
    best, wins = next(iter(first.items()))
    cases = len(result.cases)
    said = f"{best} answers soonest on {wins} of {cases} cases" if cases > 1 else f"{best} answers soonest"
    case = next(case for case in result.cases if result.best(case, "mean_latency") == best)
    ranked = result.on(case, "mean_latency")
    second = result.second(case, "mean_latency")
    said += f", in {ranked[best]:.1f} s on average" + (f" on {case}" if cases > 1 else "")
    said += f" where {second} takes {ranked[second]:.1f} s." if second else "."
    if best == "all-cloud":
        rivals = {name: sum(result.best(c, "mean_latency", without=("all-cloud",)) == name for c in result.cases) for name in ranked}
        rival = max(rivals, key=lambda name: rivals[name])
        said += f" So do not split a model that fits into the cloud; if you must, {rival} does it best."
    return said


def _make(case: Case, rng: np.random.Generator) -> TierWork:
    from .workload import built_in

    p = case.parameters
    return built_in(p["model"], p["tiers"], p["rho"], p["like"], p["seconds"], p["batching"], rng, case.cluster)


def _own(case: Case, rng: np.random.Generator) -> TierWork:
    return _work(case.loaded, seed=int(rng.integers(2**31)))


def _work(loaded: tuple[Reading, Requests, Hierarchy, list[tuple[Rate, float | None]]], seed: int) -> TierWork:
    import numpy as np

    from .workload import fading, of_requests

    how, requests, hierarchy, links = loaded
    if how.others:
        hierarchy = fading(hierarchy, 3600.0, np.random.default_rng(seed))
    if links:
        hierarchy = hierarchy.with_links([rate for rate, _ in links], [late for _, late in links])
    return of_requests(requests, how.model, hierarchy, how.rho, how.batching)
