"""Where should a mixture's experts live, and which device should get which request or token, so that tokens need not travel?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .workload import ExpertWork

experts = Arena(
    "serving/experts",
    question="Where should a mixture's experts live, and which device should get which request or token, so that tokens need not travel?",
    metrics=[
        Metric("token_throughput", unit="1/s", better="higher", kind="simulated", doc="prompt and output tokens a second"),
        Metric(
            "local_rate", better="higher", kind="simulated", scale="difference",
            doc="share of (token, expert) pairs whose expert is on the token's device",
        ),
        Metric("alltoall_bytes", unit="B", better="lower", kind="simulated", doc="to the experts and back, a token and layer"),
        Metric("expert_imbalance", better="lower", kind="simulated", doc="most tokens that a device's experts get, over the mean"),
        Metric("ttft_p50", unit="s", better="lower", kind="simulated", doc="from the start of a request's wave to its first token"),
        Metric("latency", unit="s", better="lower", kind="simulated", doc="of a request from the start of its wave, mean"),
        Metric("alltoall_share", better=None, kind="simulated", doc="of the time to the experts, in them, and back"),
        Metric("request_imbalance", better=None, kind="simulated", doc="most tokens at home on a device, over the mean, mean over waves"),
        Metric("plan_s", unit="s", better="lower", kind="measured", doc="to place the experts of all layers traced"),
    ],
    techniques={
        "sem-moe": ".sem_moe:SemMoE",
        "sem-moe-model": ".sem_moe_model:SemMoEModel",
        "sem-moe-data": ".sem_moe_data:SemMoEData",
        "vanilla": ".vanilla:Vanilla",
        "eplb": ".eplb:Eplb",
        "moetuner": ".moetuner:MoeTuner",
        "exflow": ".exflow:ExFlow",
        "random": ".random:Random",
    },
    papers={"sem-moe": "sem-moe", "sem-moe-model": "sem-moe", "sem-moe-data": "sem-moe"},
    baseline="vanilla",
    tradeoff=("token_throughput", "expert_imbalance"),
    uses=("armillary.llm",),
    repeats=1,
    constants=[
        Constant("PCIe", 25e9, "B/s", "a device and direction; PCIe 4.0 ×16 in practice"),
        Constant("100 GbE", 11.25e9, "B/s", "a port a device, 90 % of the line rate; ours"),
        Constant("NVLink", 355.5e9, "B/s", "H100, a direction: 450 GB/s and the calibration's share of it"),
        Constant("affinity", "0.833 to 0.976", "", "share of a token's choices on its k favourites, first to last layer; arXiv 2503.04398"),
    ],
)  # fmt: skip

#: Requests, layers, vocabulary, prompt, output, requests a device in a wave, training steps of the real model.
SCALES: dict[str, tuple[int, int, int, int, int, int, int]] = {
    "tiny": (96, 2, 2000, 48, 8, 4, 12),
    "small": (768, 4, 32_000, 192, 32, 16, 120),
    "large": (2048, 0, 32_000, 256, 64, 32, 800),
}
DEEPSEEK, QWEN, MIXTRAL = "deepseek-v2-lite", "qwen3-30b-a3b", "mixtral-8x7b"
#: Model, link, attention, devices, affinity.
CASES: list[tuple[str, str, str, int, str]] = [
    *((model, link, "dp", 8, "published") for model in (DEEPSEEK, QWEN) for link in ("nvlink", "pcie", "100gbe")),
    (MIXTRAL, "nvlink", "dp", 4, "published"),
    (MIXTRAL, "pcie", "dp", 4, "published"),
    *((model, link, "tp", 8, "published") for model in (DEEPSEEK, QWEN) for link in ("nvlink", "pcie")),
    (MIXTRAL, "nvlink", "tp", 4, "published"),
    (DEEPSEEK, "pcie", "dp", 8, "none"),
    (DEEPSEEK, "pcie", "tp", 8, "none"),
    (QWEN, "nvlink", "dp", 8, "none"),
    (DEEPSEEK, "pcie", "dp", 8, "other topics"),
    ("tiny-moe", "pcie", "dp", 4, "real"),
]
_KINDS = {"published": "affinity", "none": "no-affinity", "other topics": "shift", "real": "real"}


@experts.cases
def cases(scale: str) -> Iterator[Case]:
    """Three models, three links, attention data- and tensor-parallel; no affinity, other topics than learnt, a real small model."""
    requests, layers, vocabulary, prompt, output, per_device, steps = SCALES[scale]
    all_layers = {DEEPSEEK: 26, QWEN: 48, MIXTRAL: 32}
    for model, link, attention, devices, affinity in CASES:
        facts = {
            "model": model, "link": link, "attention": attention, "devices": devices, "affinity": affinity, "requests": requests,
            "per_device": per_device,
        }  # fmt: skip
        if affinity == "real":
            facts |= {"steps": steps}
        else:
            facts |= {"layers": layers or all_layers[model], "vocabulary": vocabulary, "prompt": prompt, "output": output}
        kinds = {model, link, attention, _KINDS[affinity], "nvlink" if link == "nvlink" else "slow-link"}
        tail = {"none": "/no-affinity", "other topics": "/other-topics"}.get(affinity, "")
        yield Case(f"{model}/{link}/{attention}{tail}", _make, facts, frozenset(kinds))


@experts.read
def read(
    path: Path, *, model: str = QWEN, link: str = "nvlink", attention: str = "dp", devices: int = 8, wave: int = 128
) -> Iterator[Case]:
    """A routing trace (NPZ or Parquet, as `RoutingTrace.read` says): its first half of requests to learn from, the rest to be judged on.

    `model`: a preset or a config.json with experts. `link`: nvlink, pcie, 100gbe. `attention`: dp or tp. `wave`: requests served together.
    """
    if attention not in ("dp", "tp"):
        raise unknown("attention", attention, ("dp", "tp"))
    if not 1 <= devices <= 1024 or wave < 1:
        raise InputError("devices, wave: expected 1 to 1024 devices and at least one request")
    facts = {"model": model, "link": link, "attention": attention, "devices": devices, "wave": wave}
    # Read now: what is wrong with a file is said before anything is run.
    _loaded(str(path), path.stat().st_mtime_ns, json.dumps(facts, sort_keys=True))
    yield Case(path.name, _load, facts, frozenset({"file", attention}), source=path)


@experts.run
def run(technique: Any, case: Case) -> Outcome:
    """Places from the routing that was seen, then serves the requests that come."""
    import time

    import numpy as np

    from .evaluation import serve

    work: ExpertWork = case.workload
    start = time.perf_counter()
    placement = technique.place(work.seen, work.ground.devices)
    plan_s = time.perf_counter() - start
    found = serve(work.asked, placement, work.model, work.ground, attention=work.attention, wave=work.wave, by_score=technique.by_score)
    values = {
        "local_rate": found.local_rate, "alltoall_bytes": found.bytes_per_token, "expert_imbalance": found.expert_imbalance,
        "token_throughput": found.throughput, "ttft_p50": float(np.median(found.ttft_s)), "latency": float(found.latency_s.mean()),
        "alltoall_share": found.all_to_all_share, "request_imbalance": found.request_imbalance, "plan_s": plan_s,
    }  # fmt: skip
    timeline = json.dumps(found.perfetto(), separators=(",", ":")).encode()
    left = [Artifact.quantiles("latency", found.latency_s, "s"), Artifact("timeline.json", "application/json", timeline)]
    left.append(Artifact("placement.json", "application/json", placement.to_json().encode()))
    return Outcome(values, left)


@experts.answer
def answer(result: Result) -> str:
    """The technique with most tokens a second on each case, over index order."""
    said = []
    for case in result.cases:
        found = {t: row[case] for t in result.techniques if case in (row := result.medians(t, "token_throughput"))}
        if not found:
            continue
        best = max(found, key=lambda t: found[t])
        line = f"{case}: {best} makes {found[best]:,.0f} tokens a second"
        if "vanilla" in found and best != "vanilla":
            line += f", {found[best] / found['vanilla']:.2f} times vanilla"
        said.append(f"{line}.")
    return " ".join(said) or "Nothing was run to the end."


def _make(case: Case, rng: np.random.Generator) -> ExpertWork:
    from .workload import drawn, real

    p = dict(case.parameters)
    where = (p.pop("link"), p.pop("attention"), p.pop("devices"))
    model, affinity = p.pop("model"), p.pop("affinity")
    if affinity == "real":
        return real(*where, **p, seed=case.seed32("weights"))
    return drawn(model, *where, rng, affinity=affinity, **p)


def _load(case: Case, rng: np.random.Generator) -> ExpertWork:
    assert case.source is not None
    return _loaded(str(case.source), case.source.stat().st_mtime_ns, json.dumps(dict(case.parameters), sort_keys=True))


@functools.lru_cache(maxsize=2)
def _loaded(path: str, changed_ns: int, facts: str) -> ExpertWork:
    from .workload import of_file

    return of_file(Path(path), **json.loads(facts))
