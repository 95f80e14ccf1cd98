"""Where should a mixture's experts live, and which device should get which request or token, so that tokens need not travel?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.timing import Stopwatch

if TYPE_CHECKING:
    import numpy as np

    from .workload import ExpertWork

experts = Arena(
    "serving/experts",
    question="Where should a mixture's experts live, and which device should get which request or token, so that tokens need not travel?",
    metrics=[
        Metric("token_throughput", unit="1/s", better="higher", kind="modelled", doc="prompt and output tokens per second"),
        Metric("local_rate", better="higher", scale="difference", doc="share of (token, expert) pairs with both on one device"),
        Metric("alltoall_bytes", unit="B", doc="bytes to the experts and back, per token and layer"),
        Metric("expert_imbalance", doc="the most tokens that a device's experts get, over the mean"),
        Metric("ttft_p50", unit="s", kind="modelled", doc="from the start of a request's wave to its first token"),
        Metric("latency", unit="s", kind="modelled", doc="mean time of a request from the start of its wave"),
        Metric("alltoall_share", better=None, kind="modelled", doc="share of the experts' time, products included, that tokens travel"),
        Metric("request_imbalance", better=None, doc="the most tokens at home on a device over the mean, averaged over waves"),
        Metric("plan_s", unit="s", kind="measured", doc="time to place the experts of all traced layers"),
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
    repeats=1,
    telling=(
        "deepseek-v2-lite/pcie/dp",
        "deepseek-v2-lite/nvlink/dp",
        "mixtral-8x7b/pcie/dp",
        "mixtral-8x7b/nvlink/tp",
        "mixtral-8x7b/pcie/dp/no-affinity",
    ),
    constants=[
        Constant(
            "PCIe", 55e9, "B/s", "per device and direction; 63 GB/s of PCIe 5.0 x16 less the protocol's share, as in serving/resilience"
        ),
        Constant("100 GbE", 11.25e9, "B/s", "one port per device at 90 % of the line rate; ours"),
        Constant("NVLink", 355.5e9, "B/s", "H100, per direction: 450 GB/s times the calibration's share"),
        Constant("affinity", "0.833 to 0.976", "", "share of choices on a token's k favourites, first to last layer; arXiv 2503.04398"),
    ],
)

#: Requests, layers, vocabulary, prompt, output, requests per device in a wave, training steps of the real model.
SCALES: dict[str, tuple[int, int, int, int, int, int, int]] = {
    "tiny": (96, 2, 2000, 48, 8, 4, 4),
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
    (QWEN, "nvlink", "dp", 4, "published"),
    (MIXTRAL, "pcie", "dp", 4, "none"),
    (DEEPSEEK, "pcie", "dp", 8, "none"),
    (DEEPSEEK, "pcie", "tp", 8, "none"),
    (QWEN, "nvlink", "dp", 8, "none"),
    (DEEPSEEK, "pcie", "dp", 8, "other topics"),
    ("tiny-moe", "pcie", "dp", 4, "real"),
]
#: The cases of the tiny scale: each model and each kind of attention, with affinity, without it, and as a real model has it.
TINY = (
    "mixtral-8x7b/pcie/dp", "mixtral-8x7b/nvlink/tp", "deepseek-v2-lite/pcie/dp/no-affinity", "qwen3-30b-a3b/nvlink/dp/no-affinity",
    "tiny-moe/pcie/dp",
)  # fmt: skip
#: Requests whose routing the real model records at the tiny scale.
TINY_REAL = 32
#: How many times the second's throughput counts as clearly ahead, in the middle of all cases.
CLEAR = 1.01
_KINDS = {"published": "affinity", "none": "no-affinity", "other topics": "shift", "real": "real"}


@experts.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields three models on three links with data- and tensor-parallel attention, without affinity, with new topics, and a real model."""
    requests, layers, vocabulary, prompt, output, per_device, steps = SCALES[scale]
    all_layers = {DEEPSEEK: 26, QWEN: 48, MIXTRAL: 32}
    for model, link, attention, devices, affinity in CASES:
        tail = {"none": "/no-affinity", "other topics": "/other-topics"}.get(affinity, "")
        usual = 4 if model in (MIXTRAL, "tiny-moe") else 8
        name = f"{model}/{link}/{attention}{tail}" + (f"/{devices}-devices" if devices != usual else "")
        if scale == "tiny" and name not in TINY:
            continue
        facts = {
            "model": model, "link": link, "attention": attention, "devices": devices, "affinity": affinity, "requests": requests,
            "per_device": per_device,
        }  # fmt: skip
        if affinity == "real":
            facts |= {"steps": steps, "requests": TINY_REAL if scale == "tiny" else requests}
        else:
            facts |= {"layers": layers or all_layers[model], "vocabulary": vocabulary, "prompt": prompt, "output": output}
        kinds = {model, link, attention, _KINDS[affinity], "nvlink" if link == "nvlink" else "slow-link"}
        yield Case(name, _make, facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How a routing trace is served: which model it came from, and on which devices."""

    model: str = parameter(QWEN, "a model with experts: a preset, a config.json, or a folder that holds one", file=True)
    link: Literal["nvlink", "pcie", "100gbe"] = parameter("nvlink", "what joins the devices")
    attention: Literal["dp", "tp"] = parameter("dp", "whether attention is data-parallel or tensor-parallel")
    devices: int = parameter(8, "the number of devices over which the experts are spread", range=(1, 1024))
    wave: int = parameter(128, "the number of requests that are served together", range=(1, 2**31))


@experts.read(Reading)
def read(path: Path, how: Reading) -> ExpertWork:
    """Reads a routing trace (see `RoutingTrace.read`); techniques learn from its first half and are judged on the rest."""
    from .workload import of_file

    return of_file(path, how.model, how.link, how.attention, how.devices, how.wave)


@experts.own_cases
def own_cases(work: ExpertWork, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, whose work is the trace."""
    facts = {"model": work.model.name, "link": how.link, "attention": how.attention, "devices": how.devices, "wave": how.wave}
    yield Case(name, parameters=facts, kinds=frozenset({"file", how.attention}))


@experts.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes eight requests of a mixture with eight experts, of which each token visits two in each of two layers."""
    import numpy as np

    from .routing.synthetic import draw

    file = folder / "routing.npz"
    drawn = draw(8, experts=8, k=2, layers=2, affinity=0.9, vocabulary=50, prompt=6, output=2, rng=np.random.default_rng(1))
    drawn.write(file)
    return file, {"model": MIXTRAL, "link": "pcie", "devices": "4", "wave": "4"}


@experts.run
def run(technique: Any, case: Case) -> Outcome:
    """Places experts by the routing that was seen, and then serves the other requests."""
    import numpy as np

    from .simulation.evaluation import serve

    work: ExpertWork = case.workload
    with Stopwatch() as watch:
        placement = technique.place(work.seen, work.ground.devices)
    found = serve(work.asked, placement, work.model, work.ground, attention=work.attention, wave=work.wave, by_score=technique.by_score)
    values = {
        "local_rate": found.local_rate, "alltoall_bytes": found.bytes_per_token, "expert_imbalance": found.expert_imbalance,
        "token_throughput": found.throughput, "ttft_p50": float(np.median(found.ttft_s)), "latency": float(found.latency_s.mean()),
        "alltoall_share": found.all_to_all_share, "request_imbalance": found.request_imbalance, "plan_s": watch.seconds,
    }  # fmt: skip
    left = [Artifact.quantiles("latency", found.latency_s, "s"), Artifact.timeline(found.perfetto())]
    left.append(Artifact("placement.json", "application/json", placement.to_json().encode()))
    return Outcome(values, left)


@experts.answer
def answer(result: Result) -> str:
    """Names the technique that most often makes the most tokens per second, and its gain over index order."""
    first = result.first_places("token_throughput")
    if not first:
        return "Nothing was run to the end."
    best, wins = next(iter(first.items()))
    many = len(result.cases) > 1
    ratios = {c: r for c in result.cases if (r := result.ratio(c, "token_throughput", best, "vanilla")) is not None}
    case = max(ratios, key=lambda c: ratios[c]) if ratios else next(c for c in result.cases if best in result.on(c, "token_throughput"))
    rate = result.on(case, "token_throughput")[best]
    ahead = [r for c in result.cases if (r := result.ratio(c, "token_throughput", best, result.second(c, "token_throughput") or best))]
    if many and sorted(ahead)[len(ahead) // 2] < CLEAR:
        top = f", with {ratios[case]:.2f} times the tokens of vanilla" if case in ratios and best != "vanilla" else ""
        often = f"{best} makes the most tokens per second on {wins} of {len(result.cases)} cases"
        return f"No placement is clearly ahead: {often}, and gains most on {case}{top}."
    said = f"{best} makes the most tokens per second on {wins} of {len(result.cases)} cases" if many else f"{best} is fastest"
    said += f": {rate:,.0f} on {case}" if many else f" with {rate:,.0f} tokens per second"
    return said + (f", {ratios[case]:.2f} times as many as vanilla." if case in ratios and best != "vanilla" else ".")


def _make(case: Case, rng: np.random.Generator) -> ExpertWork:
    from .workload import drawn, real

    p = dict(case.parameters)
    where = (p.pop("link"), p.pop("attention"), p.pop("devices"))
    model, affinity = p.pop("model"), p.pop("affinity")
    if affinity == "real":
        return real(*where, **p, seed=case.seed32("weights"))
    return drawn(model, *where, rng, affinity=affinity, **p)
