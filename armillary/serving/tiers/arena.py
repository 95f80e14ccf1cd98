"""My model is split over edge boxes, a fog server and the cloud: where to cut it, and which node gets the next request?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.study import Result

    from .workload import TierWork

tiers = Arena(
    "serving/tiers",
    question="My model is split over edge boxes, a fog server and the cloud: where to cut it, and which node gets the next request?",
    metrics=[
        Metric("mean_latency", unit="s", better="lower", kind="simulated", doc="from arrival until the last token is with the user"),
        Metric("p95_latency", unit="s", better="lower", kind="simulated"),
        Metric("ttft", unit="s", better="lower", kind="simulated", doc="mean, until the first token is with the user"),
        Metric(
            "gpu_utilisation", better="higher", kind="simulated", scale="difference", doc="of all nodes, until the last request is done"
        ),
        Metric("replans", better=None, kind="simulated", doc="how often the model was cut anew"),
        Metric("plan_s", unit="s", better="lower", kind="measured", doc="to cut the model, once"),
        Metric("decision_us", unit="µs", better="lower", kind="measured", doc="to choose a node, a request and tier"),
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
    uses=("armillary.llm",),
    repeats=1,
    constants=[
        Constant("fading", "×0.4, 30 s", "", "second state of a link and mean stay in each state; ours"),
        Constant("others", "U(0, 0.5), 60 s", "", "share of a device that others take, drawn anew; ours"),
        Constant("offered load", "ρ", "", "of what the slowest tier takes with as many blocks on every tier"),
        Constant("usable memory", 0.95, "", "of a device, less 1 GB"),
    ],
)

SECONDS = {"tiny": 40.0, "small": 600.0, "large": 3600.0}
#: Case to model, tiers, share of capacity, lengths, batching, further kinds.
CASES: dict[str, tuple[str, str, float, str, bool]] = {
    **{f"phi-3-medium/{rho}": ("phi-3-medium", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
    "phi-3-medium/0.6/chat": ("phi-3-medium", "mixed", 0.6, "chat", False),
    "phi-3-medium/0.6/summary": ("phi-3-medium", "mixed", 0.6, "summary", False),
    "phi-3-medium/0.6/idle": ("phi-3-medium", "idle", 0.6, "even", False),
    "phi-3-medium/0.6/equal": ("phi-3-medium", "equal", 0.6, "even", False),
    "phi-3-medium/0.6/batching": ("phi-3-medium", "mixed", 0.6, "even", True),
    **{f"phi-3-medium/{rho}/long": ("phi-3-medium", "mixed", rho, "long", False) for rho in (0.3, 0.6, 0.85)},
    **{f"llama-3-8b/{rho}": ("llama-3-8b", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
    **{f"qwen2.5-32b/{rho}": ("qwen2.5-32b", "mixed", rho, "even", False) for rho in (0.3, 0.6, 0.85)},
}


@tiers.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Three models at three loads, chat, summaries and long answers; without other load, on equal tiers, and on nodes that batch."""
    for name, (model, kind, rho, like, batching) in CASES.items():
        if cluster is not None and kind == "equal":
            continue
        facts = {
            "model": model,
            "tiers": kind,
            "rho": rho,
            "like": like,
            "batching": batching,
            "seconds": SECONDS[scale] / (4 if batching else 1),
        }
        load = {f"rho-{rho}"} if like != "long" and not batching else set()
        kinds = {model, kind, like, "batching" if batching else "one-by-one", *load}
        yield Case(name, _make, facts, frozenset(kinds), cluster=cluster)


@tiers.read
def read(
    path: Path,
    *,
    model: str = "phi-3-medium",
    tiers: str = "tiers-3",
    bandwidth: str = "",
    rho: float = 0.0,
    batching: bool = False,
    others: bool = True,
    limit: int = 0,
) -> Iterator[Case]:
    """Requests in any form that `armillary.llm` reads.

    `tiers`: a cluster file whose network has the topology tiers. `bandwidth`: files (CSV, Mahimahi) for the links from the lowest up,
    with commas between. `rho` above 0 stretches arrivals to that share of what the slowest tier takes. `others`: whether other programs
    use the nodes too, and links without a file fade.
    """
    if rho < 0 or rho > 10 or limit < 0:
        raise InputError("rho, limit: expected 0 to 10, and 0 or more requests")
    facts = {"model": model, "tiers": tiers, "bandwidth": bandwidth, "rho": rho, "batching": batching, "others": others, "limit": limit}
    # Read now: what is wrong with a file is said before anything is run.
    _loaded(str(path), path.stat().st_mtime_ns, json.dumps(facts, sort_keys=True), 0)
    yield Case(path.name, _load, facts, frozenset({"file"}), source=path)


@tiers.run
def run(technique: Any, case: Case) -> Outcome:
    """The cut, then every request through the tiers."""
    import numpy as np

    from armillary.timing import timed

    from .simulation import serve

    work: TierWork = case.workload
    plan = technique.cut(work.costs, work.mix)
    plan_s = timed(lambda: technique.cut(work.costs, work.mix), min_seconds=0.02, min_calls=1).median
    found = serve(work.costs, plan, technique.dispatcher(work.costs, plan, work.mix), work.requests, work.mix, batching=work.batching)
    latency = found.latency_s
    trace = json.dumps(found.perfetto(work.costs.hierarchy), separators=(",", ":")).encode()
    left = [Artifact.quantiles("latency", latency, "s"), Artifact("timeline.json", "application/json", trace)]
    left.append(Artifact("plan.csv", "text/csv", plan.table().write_csv().encode()))
    values = {
        "mean_latency": float(latency.mean()), "p95_latency": float(np.quantile(latency, 0.95)), "ttft": float(found.ttft_s.mean()),
        "gpu_utilisation": found.utilisation, "replans": float(found.replans), "plan_s": plan_s, "decision_us": 1e6 * found.decision_s,
    }  # fmt: skip
    return Outcome(values, left)


@tiers.answer
def answer(result: Result) -> str:
    """The fastest way to run it on each case, and how it cuts the model."""
    said = []
    for case, facts in result.cases.items():
        found = {t: row[case] for t in result.techniques if case in (row := result.medians(t, "mean_latency"))}
        if not found:
            continue
        best = min(found, key=lambda t: found[t])
        split = {t: v for t, v in found.items() if t != "all-cloud"}
        line = f"{case}: {best} answers in {found[best]:.1f} s on average"
        if best == "all-cloud" and split:
            rival = min(split, key=lambda t: split[t])
            line += f", so do not split {facts['parameters']['model']} unless you must; if you must, {rival} takes {split[rival]:.1f} s"
        elif len(found) > 1:
            second = min((t for t in found if t != best), key=lambda t: found[t])
            line += f"; {second} takes {found[second]:.1f} s"
        said.append(f"{line}.")
    return " ".join(said) or "Nothing was run to the end."


def _make(case: Case, rng: np.random.Generator) -> TierWork:
    from .workload import built_in

    p = case.parameters
    return built_in(p["model"], p["tiers"], p["rho"], p["like"], p["seconds"], p["batching"], rng, case.cluster)


def _load(case: Case, rng: np.random.Generator) -> TierWork:
    assert case.source is not None
    facts = json.dumps(dict(case.parameters), sort_keys=True)
    return _loaded(str(case.source), case.source.stat().st_mtime_ns, facts, int(rng.integers(2**31)))


@functools.lru_cache(maxsize=2)
def _loaded(path: str, changed_ns: int, facts: str, seed: int) -> TierWork:
    import numpy as np

    from armillary.cluster import find
    from armillary.llm.requests import Requests

    from .hierarchy import Hierarchy
    from .rate import read_rate
    from .workload import fading, of_requests

    how = json.loads(facts)
    requests = Requests.read(path, **({"limit": how["limit"]} if how["limit"] else {}))
    hierarchy = Hierarchy.of_cluster(find(how["tiers"]))
    if how["others"]:
        hierarchy = fading(hierarchy, 3600.0, np.random.default_rng(seed))
    if how["bandwidth"]:
        links = [read_rate(name) for name in how["bandwidth"].split(",")]
        hierarchy = hierarchy.with_links([rate for rate, _ in links], [late for _, late in links])
    return of_requests(requests, how["model"], hierarchy, how["rho"], how["batching"])
