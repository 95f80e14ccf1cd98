"""Which layers, at which precision, on which device, with which micro-batches finish a pile of prompts first at the quality needed?"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.study import Result

_PERPLEXITY = frozenset({"perplexity"})

offline = Arena(
    "serving/offline",
    question="I have a pile of prompts and a mixed bag of GPUs: which layers, at which bits, on which device, in which micro-batches?",
    metrics=[
        Metric("token_throughput", unit="tok/s", better="higher", kind="simulated", doc="output tokens over the makespan"),
        Metric("makespan", unit="s", better="lower", kind="simulated"),
        Metric("quality_loss", better="lower", kind="modelled", scale="difference", doc="sum of omega; 1: an average layer at 4 bits"),
        Metric("over_quality", better="lower", kind="modelled", scale="difference", doc="what quality_loss is above the case's bound"),
        Metric("perplexity_ratio", better="lower", kind="measured", on=_PERPLEXITY, doc="of a small trained model at the plan's bits"),
        Metric("plan_s", unit="s", better="lower", kind="measured", doc="to find the plan, on this machine"),
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
    uses=("armillary.llm", "armillary.engine", "armillary.cluster"),
    repeats=1,
    constants=[
        Constant("memory used", 0.95, "", "of a device's, as published (LLM-PQ, arXiv 2403.01136)"),
        Constant("context and allocator", 1.93, "GB", "on each device, as published"),
        Constant("group", 128, "weights", "share a scale at 4 bits or fewer"),
        Constant("dequantisation", 2, "operations", "a weight, at the rate of matrix products"),
        Constant("devices", "uncalibrated", "", "T4, P100, V100 and A100-40 at the usual shares of their data sheets: armillary.llm"),
    ],
)  # fmt: skip

#: The model that each of the ten clusters is asked to run.
PUBLISHED = {1: "opt-13b", 2: "opt-13b", 3: "opt-30b", 4: "opt-30b", 5: "opt-66b", 6: "opt-66b", 7: "opt-30b", 8: "opt-66b",
             9: "bloom-176b", 10: "bloom-176b"}  # fmt: skip
MIXED = {3, 4, 5, 6, 9}
#: Prompts of 200 to 1,900 tokens to be summarised: model, cluster, sequences a batch.
SUMMARISE = {"summarise-opt-30b": ("opt-30b", "mixed-offline-3", 8), "summarise-llama-70b": ("llama-3-70b", "mixed-offline-6", 32)}
#: Devices for the model whose perplexity is measured (one node each), and sequences a batch: bits are short on all of them.
PERPLEXITY = {"perplexity-t4": (("t4",), 32), "perplexity-t4-p100": (("t4", "p100-12"), 32), "perplexity-p100": (("p100-12",), 24)}
OUTPUT, PROMPTS = {"tiny": 12, "small": 100, "large": 100}, {"tiny": 16, "small": 128, "large": 1024}
STEPS, GROUP = {"tiny": 20, "small": 200, "large": 300}, {"tiny": 8, "small": 1, "large": 1}


@offline.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """The papers' model on each of ten clusters, summaries, and plans whose perplexity is measured; or four models on your cluster."""
    facts: dict[str, Any] = {"prompt": 512, "output": OUTPUT[scale], "batch": 32, "group": GROUP[scale]}
    if cluster is not None:
        for model in ("llama-3-8b", "opt-30b", "opt-66b", "llama-3-70b"):
            yield Case(model, _numbers, {**facts, "model": model, "cluster": None}, frozenset({"llm"}), cluster=cluster)
        return
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


@offline.read
def read(
    path: Path,
    *,
    model: str = "llama-3-8b",
    devices: str = "mixed-offline-3",
    prompt: int = 512,
    output: int = 100,
    batch: int = 32,
    bits: str = "3,4,8,16",
    omega: str = "",
    profile: str = "",
    quality: str = "uniform",
) -> Iterator[Case]:
    """Prompts from JSONL (`{"prompt_tokens": …, "max_tokens": …}`, or OpenAI's batch format), or a model's config.json.

    With a config.json, `prompt`, `output` and `batch` say the work; with prompts, `model` says the model. `devices` is a cluster (preset or
    file), `omega` a CSV `layer,bits,omega`, `profile` measured latencies, `quality` the most Σω (a number, `uniform`: what the best single
    precision that fits loses, or `any`).
    """
    how = {"model": model, "devices": devices, "prompt": prompt, "output": output, "batch": batch, "bits": bits, "omega": omega,
           "profile": profile, "quality": quality, "path": str(path)}  # fmt: skip
    work = _from_files(json.dumps(how), path.stat().st_mtime_ns)
    facts = {**how, "notes": list(work.notes)}
    yield Case(path.name, _load, facts, frozenset({"llm", "file"}), cluster=work.cluster, source=path)


@offline.run
def run(technique: Any, case: Case) -> Outcome:
    """A plan, put to the pipeline's simulation; its bits put to a real model where the case has one."""
    from .problem import DoesNotFit

    work, tiny = case.workload
    start = time.perf_counter()
    try:
        plan = technique.plan_for(work)
    except DoesNotFit as problem:
        raise NotForThisCase(str(problem)) from None
    seconds = time.perf_counter() - start
    ran = plan.simulate()
    loss = plan.quality_loss
    values = {
        "token_throughput": ran.token_throughput, "makespan": ran.makespan_s, "quality_loss": loss,
        "over_quality": 0.0 if work.quality is None else max(0.0, loss - work.quality * (1 + 1e-9)), "plan_s": seconds,
    }  # fmt: skip
    if tiny is not None:
        from .trained_tiny import perplexity_ratio

        values["perplexity_ratio"] = perplexity_ratio(tiny, plan.layer_bits)
    table = plan.table().write_csv().encode()
    recipe = json.dumps({"device_map": plan.device_map(), "bits": plan.bits(), "vllm": plan.vllm_pp(), "solver": plan.solver}).encode()
    return Outcome(values, [Artifact("plan.csv", "text/csv", table), Artifact("plan.json", "application/json", recipe)])


@offline.answer
def answer(result: Result) -> str:
    """Which plan finishes first on each case among those that keep the quality, and by how much."""
    said = []
    for case, facts in result.cases.items():
        rate = {t: found[case] for t in result.techniques if case in (found := result.medians(t, "token_throughput"))}
        over = {t: result.medians(t, "over_quality").get(case, 0.0) for t in rate} if "over_quality" in result.metrics else {}
        kept = {t: value for t, value in rate.items() if over.get(t, 0.0) <= 0}
        if not kept:
            continue
        ranked = sorted(kept, key=lambda t: -kept[t])
        line = f"{case}: {ranked[0]} makes {kept[ranked[0]]:.0f} tokens a second"
        if len(ranked) > 1:
            line += f" ({ranked[1]} {kept[ranked[1]]:.0f})"
        broke = sorted(t for t in rate if t not in kept)
        line += f"; {', '.join(broke)} would lose more quality" if broke else ""
        said.append(line + "".join(f" ({note})" for note in facts["parameters"].get("notes", ())) + ".")
    return " ".join(said) or "Nothing was planned."


@offline.plots
def plots(result: Result) -> Sequence[Any]:
    """Throughput of every technique on every case."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {"tokens a second": {}}
    for technique in result.techniques:
        found = result.medians(technique, "token_throughput") if "token_throughput" in result.metrics else {}
        if found:
            lines["tokens a second"][technique] = list(found.items())
    return [panels(lines, "Output tokens a second", "", "tok/s", log_y=True)] if lines["tokens a second"] else []


def bounded(work: Any) -> Any:
    """The work with the quality that the best single precision, dealt evenly, would lose as its bound; none where that does not fit."""
    from .problem import DoesNotFit
    from .uniform import Uniform

    try:
        return replace(work, quality=Uniform().plan_for(work).quality_loss)
    except DoesNotFit:
        return work


def _numbers(case: Case, rng: np.random.Generator) -> Any:
    from .workload import OfflineWork

    p = case.parameters
    cluster: Any = case.cluster if p["cluster"] is None else p["cluster"]
    return bounded(OfflineWork.of(p["model"], cluster, prompt=p["prompt"], output=p["output"], batch=p["batch"], group=p["group"])), None


def _summaries(case: Case, rng: np.random.Generator) -> Any:
    from .workload import OfflineWork

    p = case.parameters
    prompts = rng.integers(200, 1901, p["prompts"])
    return bounded(OfflineWork.of(p["model"], p["cluster"], prompt=prompts, output=p["output"], batch=p["batch"], group=p["group"])), None


def _measured(case: Case, rng: np.random.Generator) -> Any:
    from .trained_tiny import trained, trained_omega
    from .workload import OfflineWork

    p = case.parameters
    tiny, table = trained(p["steps"]), trained_omega(p["steps"])
    cluster = nodes_of(tuple(p["devices"]))
    return bounded(OfflineWork.of(p["model"], cluster, prompt=p["prompt"], output=p["output"], batch=p["batch"], omega=table)), tiny


@functools.cache
def nodes_of(models: tuple[str, ...], rate: str = "100 Gb/s") -> Cluster:
    """A cluster of one node for each device: PCIe 3 inside, Ethernet between."""
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


def _load(case: Case, rng: np.random.Generator) -> Any:
    how = {k: v for k, v in case.parameters.items() if k != "notes"}
    return _from_files(json.dumps(how), Path(how["path"]).stat().st_mtime_ns), None


@functools.lru_cache(maxsize=2)
def _from_files(how_text: str, changed_ns: int) -> Any:
    from .quality import read_omega
    from .splitquant import profile_of
    from .workload import OfflineWork, read_prompts

    how: Mapping[str, Any] = json.loads(how_text)
    path = Path(how["path"])
    notes: tuple[str, ...] = ()
    model, prompt, output = how["model"], how["prompt"], how["output"]
    if path.is_dir() or path.suffix == ".json":
        model = str(path)
    else:
        prompt, output, notes = read_prompts(path)
    try:
        bits = [int(b) for b in how["bits"].split(",")]
    except ValueError:
        raise InputError(f'found "{how["bits"]}"; expected bits like 3,4,8,16', where="--bits") from None
    work = OfflineWork.of(
        model, how["devices"], prompt=prompt, output=output, batch=how["batch"], bits=bits, notes=notes,
        omega=read_omega(how["omega"]) if how["omega"] else None, profile=profile_of(how["profile"] or None),
    )  # fmt: skip
    if how["quality"] == "uniform":
        return bounded(work)
    if how["quality"] == "any":
        return work
    try:
        most = float(how["quality"])
    except ValueError:
        most = -1.0
    if not 0 <= most < float("inf"):
        raise InputError(f'found "{how["quality"]}"; expected a number of 0 or more, uniform, or any', where="--quality")
    return replace(work, quality=most)
