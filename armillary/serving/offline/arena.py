"""Which split of layers, precisions and micro-batches over mixed GPUs finishes a pile of prompts first at the quality needed?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.errors import InputError
from armillary.timing import Stopwatch

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.llm import Tiny

    from .workload import OfflineWork

_PERPLEXITY = frozenset({"perplexity"})

offline = Arena(
    "serving/offline",
    question="I have a pile of prompts and a mixed bag of GPUs: which layers, at which bits, on which device, in which micro-batches?",
    metrics=[
        Metric("token_throughput", unit="tok/s", better="higher", doc="output tokens over the makespan"),
        Metric("makespan", unit="s", doc="seconds until the last token"),
        Metric("quality_loss", kind="modelled", scale="difference", doc="sum of omega over layers; an average layer at 4 bits loses 1"),
        Metric("over_quality", kind="modelled", scale="difference", doc="how far quality_loss exceeds the bound of the case"),
        Metric("perplexity_ratio", kind="measured", on=_PERPLEXITY, doc="perplexity of a small model at the plan's bits over that at 16"),
        Metric("plan_s", unit="s", kind="measured", doc="seconds to find the plan on this machine"),
    ],
    techniques={
        "splitquant": ".splitquant:SplitQuant",
        "splitquant-h": ".splitquant_h:SplitQuantH",
        "uniform": ".uniform:Uniform",
        "pipeedge": ".pipeedge:PipeEdge",
        "adabits": ".adabits:Adabits",
        "flexgen": ".flexgen:FlexGen",
        "memory-proportional": ".memory_proportional:MemoryProportional",
    },
    papers={"splitquant": "splitquant", "splitquant-h": "splitquant"},
    baseline="uniform",
    tradeoff=("quality_loss", "token_throughput"),
    repeats=1,
    telling=("cluster-3", "cluster-4", "cluster-7"),
    constants=[
        Constant("memory used", 0.95, "", "share of the memory of a device, as published (LLM-PQ, arXiv 2403.01136)"),
        Constant("context and allocator", 1.93, "GB", "reserved on each device, as published"),
        Constant("group", 128, "weights", "weights that share a scale at 4 bits or fewer"),
        Constant("dequantisation", 2, "operations", "per weight, at the rate of matrix products"),
        Constant("devices", "uncalibrated", "", "armillary.llm takes T4, P100, V100 and A100-40 at the usual shares of their data sheets"),
    ],
)  # fmt: skip

#: The model that each of the ten clusters is asked to run.
PUBLISHED = {1: "opt-13b", 2: "opt-13b", 3: "opt-30b", 4: "opt-30b", 5: "opt-66b", 6: "opt-66b", 7: "opt-30b", 8: "opt-66b",
             9: "bloom-176b", 10: "bloom-176b"}  # fmt: skip
MIXED = {3, 4, 5, 6, 9}
#: Prompts of 200 to 1,900 tokens that are summarised, each with its model, cluster and sequences per batch.
SUMMARISE = {"summarise-opt-30b": ("opt-30b", "mixed-offline-3", 8), "summarise-llama-70b": ("llama-3-70b", "mixed-offline-6", 32)}
#: Devices for the model whose perplexity is measured (one node each), and sequences per batch; memory is scarce on all of them.
PERPLEXITY = {"perplexity-t4": (("t4",), 32), "perplexity-t4-p100": (("t4", "p100-12"), 32), "perplexity-p100": (("p100-12",), 24)}
OUTPUT, PROMPTS = {"tiny": 12, "small": 100, "large": 100}, {"tiny": 16, "small": 128, "large": 1024}
STEPS, GROUP = {"tiny": 20, "small": 200, "large": 300}, {"tiny": 8, "small": 1, "large": 1}
#: The cases of the tiny scale: every kind of case, few of each.
TINY = frozenset({"cluster-1", "cluster-3", "cluster-7", "summarise-opt-30b", "perplexity-t4"})


@offline.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Yields the papers' models on ten clusters, summaries, and plans with measured perplexity; or four models on the user's cluster."""
    facts: dict[str, Any] = {"prompt": 512, "output": OUTPUT[scale], "batch": 32, "group": GROUP[scale]}
    if cluster is None:
        yield from (case for case in _built_in(scale, facts) if scale != "tiny" or case.name in TINY)
        return
    for model in ("llama-3-8b", "opt-30b", "opt-66b", "llama-3-70b"):
        yield Case(model, _numbers, {**facts, "model": model, "cluster": None}, frozenset({"llm"}), cluster=cluster)


def _built_in(scale: str, facts: dict[str, Any]) -> Iterator[Case]:
    for number, model in PUBLISHED.items():
        kinds = {"llm", "published", "mixed" if number in MIXED else "homogeneous"}
        yield Case(f"cluster-{number}", _numbers, {**facts, "model": model, "cluster": f"mixed-offline-{number}"}, frozenset(kinds))
    yield Case("llama-8b", _numbers, {**facts, "model": "llama-3-8b", "cluster": "mixed-offline-7"}, frozenset({"llm", "homogeneous"}))
    for name, (model, there, batch) in SUMMARISE.items():
        more = {"model": model, "cluster": there, "batch": batch, "prompts": PROMPTS[scale]}
        yield Case(name, _summaries, {**facts, **more}, frozenset({"llm", "summarise", "mixed"}))
    for name, (devices, batch) in PERPLEXITY.items():
        more = {"model": "wide-8", "devices": list(devices), "batch": batch, "steps": STEPS[scale], "group": 1}
        yield Case(name, _measured, {**facts, **more}, frozenset({"llm", "perplexity"}))


@dataclass(frozen=True)
class Reading:
    """The model and devices for which a file of prompts is planned, and what is known about them."""

    model: str = parameter("llama-3-8b", "the model of a file of prompts: a preset, a config.json, or its folder", file=True)
    devices: str = parameter("mixed-offline-3", "the cluster: a preset or a file", file=True)
    prompt: int = parameter(512, "tokens per prompt, where the file is a config.json", range=(1, 10_000_000))
    output: int = parameter(100, "output tokens per prompt, where the file is a config.json", range=(1, 10_000_000))
    batch: int = parameter(32, "sequences per batch", range=(1, 1_000_000))
    bits: tuple[int, ...] = parameter((3, 4, 8, 16), "the precisions that a layer may have", choices=(2, 3, 4, 8, 16))
    omega: str = parameter("", "a CSV layer,bits,omega of the quality that each layer loses; a stand-in if empty", file=True)
    profile: str = parameter("", "a CSV of measured layer latencies; the operators of `armillary.llm` if empty", file=True)
    quality: str = parameter("uniform", "the most Σω: a number, uniform (what the best single precision that fits loses), or any")

    @property
    def bound(self) -> float | None:
        """The most Σω as a number, where it is one."""
        return None if self.quality in ("uniform", "any") else float(self.quality)

    def validate(self) -> None:
        """Raises InputError if no precision is allowed, or if the bound on quality is neither a number nor a known word."""
        if not self.bits:
            raise InputError("found none; expected some of 2, 3, 4, 8, 16", where="--bits")
        try:
            wrong = self.bound is not None and not 0 <= self.bound < float("inf")
        except ValueError:
            wrong = True
        if wrong:
            raise InputError(f'found "{self.quality}"; expected a number of 0 or more, uniform, or any', where="--quality")


@offline.read(Reading, folders=True)
def read(path: Path, how: Reading) -> OfflineWork:
    """Prompts as JSONL (`{"prompt_tokens": …, "max_tokens": …}` or OpenAI's batch format), or the config.json of a model."""
    from armillary.llm import Model

    from .quality.indicator import read_omega
    from .splitquant import profile_of
    from .workload import OfflineWork, model_of, read_prompts

    notes: tuple[str, ...] = ()
    prompt: Any = how.prompt
    output: Any = how.output
    model = model_of(how.model)
    if path.is_dir() or path.suffix == ".json":
        model = Model.from_config(path / "config.json" if path.is_dir() else path)
    else:
        prompt, output, notes = read_prompts(path)
    work = OfflineWork.of(
        model, how.devices, prompt=prompt, output=output, batch=how.batch, bits=how.bits, notes=notes,
        omega=read_omega(how.omega) if how.omega else None, profile=profile_of(how.profile or None),
    )  # fmt: skip
    return bounded(work) if how.quality == "uniform" else replace(work, quality=how.bound)


@offline.own_cases
def own_cases(work: OfflineWork, name: str, how: Reading) -> Iterator[Case]:
    """Yields the prompts as one case."""
    facts = {"model": work.model.name, "prompts": len(work.prompt), "batch": work.batch, "notes": list(work.notes)}
    yield Case(name, _own, facts, frozenset({"llm", "file"}), cluster=work.cluster)


@offline.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Returns three prompts, one of them in OpenAI's batch format."""
    file = folder / "prompts.jsonl"
    body = {"model": "m", "messages": [{"role": "user", "content": "Summarise the following report."}], "max_tokens": 8}
    asked = {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    rows = [{"prompt_tokens": 64, "max_tokens": 4}, {"prompt_tokens": 200, "max_tokens": 6}, asked]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, {"model": "llama-3.2-1b", "devices": "mixed-offline-7", "batch": "4"}


@offline.run
def run(technique: Any, case: Case) -> Outcome:
    """Makes a plan and simulates its pipeline; if the case has a real model, the plan's bits are applied to it."""
    from .planning.problem import DoesNotFit

    work, tiny = case.workload
    try:
        with Stopwatch() as watch:
            plan = technique.plan_for(work)
    except DoesNotFit as problem:
        raise NotForThisCase(str(problem)) from None
    ran = plan.simulate()
    loss = plan.quality_loss
    values = {
        "token_throughput": ran.token_throughput, "makespan": ran.makespan_s, "quality_loss": loss,
        "over_quality": 0.0 if work.quality is None else max(0.0, loss - work.quality * (1 + 1e-9)), "plan_s": watch.seconds,
    }  # fmt: skip
    if tiny is not None:
        from .quality.trained_tiny import perplexity_ratio

        values["perplexity_ratio"] = perplexity_ratio(tiny, plan.layer_bits, plain=case.once(_plain_loss))
    recipe = json.dumps({"device_map": plan.device_map(), "bits": plan.bits(), "vllm": plan.vllm_pp(), "solver": plan.solver}).encode()
    return Outcome(values, [Artifact.table("plan", plan.table()), Artifact("plan.json", "application/json", recipe)])


@offline.answer
def answer(result: Result) -> str:
    """Returns the plan that finishes first among those that keep the quality, and by how much."""
    ranked = {case: kept for case in result.cases if (kept := _kept(result, case))}
    if not ranked:
        return "Nothing was planned."
    firsts = [next(iter(kept)) for kept in ranked.values()]
    best = max(dict.fromkeys(firsts), key=firsts.count)
    case = next(case for case, first in zip(ranked, firsts, strict=True) if first == best)
    rates = list(ranked[case].items())
    said = f"{best} makes {rates[0][1]:.0f} tokens per second on {case}"
    said += f", where {rates[1][0]} makes {rates[1][1]:.0f}" if len(rates) > 1 else ""
    said += f"; it is the fastest on {firsts.count(best)} of {len(ranked)} cases at the quality required." if len(ranked) > 1 else "."
    broke = sorted({t for c in ranked for t in result.on(c, "token_throughput") if t not in ranked[c]})
    if broke and len(ranked) == 1:
        said += f" Plans of {', '.join(broke)} would lose more quality than allowed."
    return said + "".join(f" ({note}.)" for note in result.cases[case]["parameters"].get("notes", ()))


def _kept(result: Result, case: str) -> dict[str, float]:
    """Returns tokens per second of the plans that keep the quality, the fastest first."""
    if "token_throughput" not in result.metrics:
        return {}
    over = {t for t, loss in result.on(case, "over_quality").items() if loss > 0} if "over_quality" in result.metrics else set()
    return result.on(case, "token_throughput", without=over)


@offline.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the throughput of every technique on every case."""
    if "token_throughput" not in result.metrics:
        return []
    return result.panels("Output tokens per second", "token_throughput", y="tok/s", log_y=True)


def bounded(work: OfflineWork) -> OfflineWork:
    """Returns the work bounded by the quality loss of the best single precision, dealt evenly; unbounded if that does not fit."""
    from .planning.problem import DoesNotFit
    from .uniform import Uniform

    try:
        return replace(work, quality=Uniform().plan_for(work).quality_loss)
    except DoesNotFit:
        return work


def _numbers(case: Case, rng: np.random.Generator) -> tuple[OfflineWork, None]:
    from .workload import OfflineWork

    p = case.parameters
    cluster: Any = case.cluster if p["cluster"] is None else p["cluster"]
    return bounded(OfflineWork.of(p["model"], cluster, prompt=p["prompt"], output=p["output"], batch=p["batch"], group=p["group"])), None


def _summaries(case: Case, rng: np.random.Generator) -> tuple[OfflineWork, None]:
    from .workload import OfflineWork

    p = case.parameters
    prompts = rng.integers(200, 1901, p["prompts"])
    return bounded(OfflineWork.of(p["model"], p["cluster"], prompt=prompts, output=p["output"], batch=p["batch"], group=p["group"])), None


def _measured(case: Case, rng: np.random.Generator) -> tuple[OfflineWork, Tiny]:
    from .quality.trained_tiny import trained, trained_omega
    from .workload import OfflineWork

    p = case.parameters
    tiny, table = trained(p["steps"]), trained_omega(p["steps"])
    cluster = nodes_of(tuple(p["devices"]))
    return bounded(OfflineWork.of(p["model"], cluster, prompt=p["prompt"], output=p["output"], batch=p["batch"], omega=table)), tiny


@functools.cache
def nodes_of(models: tuple[str, ...], rate: str = "100 Gb/s") -> Cluster:
    """Returns a cluster of one node for each device: PCIe 3 inside, Ethernet between."""
    from armillary.cluster import from_dict

    groups = [
        {
            "name": f"node-{i}", "count": 1,
            "node": {
                "socket": [{"count": 1}],
                "device": [{"count": 1, "kind": "gpu", "model": model, "near": "socket:0"}],
                "nic": [{"count": 1, "rate": rate, "network": "compute"}],
                "link": [{"kind": "pcie", "topology": "tree", "between": ["socket", "device"], "rate": "12 GB/s", "latency": "0.9 us"}],
            },
        }
        for i, model in enumerate(models)
    ]  # fmt: skip
    network = {"compute": {"topology": "star", "rate": rate, "latency": "10 us"}}
    return from_dict({"armillary": 1, "name": "-".join(models), "group": groups, "network": network})


def _own(case: Case, rng: np.random.Generator) -> tuple[OfflineWork, None]:
    return case.loaded, None


def _plain_loss(case: Case) -> float:
    """Returns the loss of the trained model without quantisation, to which every plan is compared."""
    from .quality.trained_tiny import loss

    return loss(case.workload[1])
