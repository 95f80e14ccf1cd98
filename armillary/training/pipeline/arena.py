"""A pipeline idles while it fills and drains; partitions, recomputation and schedules decide for how long, and whether memory lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from .chunks.work import ChunkPlan, SequenceWork
    from .planning.layers import LayeredWork, StagePlan
    from .simulation.simulator import Simulated

_SIMULATED = frozenset({"simulated"})

pipeline = Arena(
    "training/pipeline",
    question="With these layers, devices and micro-batches, which partition, recomputation and schedule gives the shortest step within "
    "memory, and how large is the bubble?",
    metrics=[
        Metric("step_time_s", unit="s", kind="by case", doc="seconds of one step, gradients of copies included"),
        Metric("bubble_fraction", scale="difference", on=_SIMULATED, doc="share of the ranks' time in which they wait"),
        Metric("useful_fraction", better="higher", scale="difference", on=_SIMULATED, doc="share that is neither waiting nor recomputing"),
        Metric("tokens_per_s", unit="1/s", better="higher", on=_SIMULATED, doc="tokens, or samples of ResNets, per second"),
        Metric("peak_memory_bytes", unit="B", on=_SIMULATED, doc="bytes of the fullest rank at its worst moment"),
        Metric("memory_imbalance", on=_SIMULATED, doc="peak of the fullest rank over that of the emptiest"),
        Metric("memory_utilisation", better="higher", on=_SIMULATED, doc="mean over the ranks of peak over capacity"),
        Metric("p2p_bytes", unit="B", on=_SIMULATED, doc="bytes that ranks send each other in a step"),
        Metric("promise_error", scale="difference", on=_SIMULATED, doc="|promised seconds / simulated seconds − 1|"),
    ],
    techniques={
        "gpipe": ".gpipe:Gpipe",
        "1f1b": ".one_f_one_b:OneFOneB",
        "interleaved-1f1b": ".interleaved_1f1b:Interleaved1F1B",
        "zb-h1": ".zb_h1:ZbH1",
        "zb-v": ".zb_v:ZbV",
        "dualpipe-v": ".dualpipe_v:DualPipeV",
        "chimera": ".chimera:Chimera",
        "prt": ".prt:Prt",
        "prt-two": ".prt:Prt(direction=two)",
        "megatron-uniform": ".megatron_uniform:MegatronUniform",
        "pipedream": ".pipedream:PipeDream",
        "merak": ".merak:Merak",
        "adapipe": ".adapipe:AdaPipe",
        "bmpipe": ".bmpipe:BmPipe",
        "seq1f1b": ".seq1f1b:Seq1F1B",
        "sequence-parallel": ".sequence_parallel:SequenceParallel",
        "infinipipe": ".infinipipe:InfiniPipe",
        "given": ".given:Given",
    },
    papers={"infinipipe": "infinipipe", "prt": "prt", "prt-two": "prt", "bmpipe": "bmpipe"},
    baseline="1f1b",
    tradeoff=("step_time_s", "peak_memory_bytes"),
    repeats=1,
    telling=["gpt3-175b-m16", "llama3-70b-vocab-m32", "bert-large-m8", "resnet152-m8", "long-32k-github"],
    constants=[
        Constant("seconds of layers", "armillary.llm", "s", "modelled; calibrated for A100 and H100, uncalibrated for Ascend 910B"),
        Constant("released by I", 0.6, "", "share of activations that the gradient of the input frees (ours)"),
        Constant("usable memory", "0.96, less 1 GiB", "", "as armillary.llm.fits counts fragmentation and workspace"),
        Constant("exchange of experts", "hidden", "", "DeepSeek-V3 reports that it overlaps with computation"),
        Constant("masked words", 80 / 512, "", "share of BERT's tokens that the loss predicts (Devlin et al., 2019: 80 of 512)"),
        Constant("misfit", 0.1, "", "σ of the lognormal slowdown of each layer in misfit cases (ours)"),
        Constant("lengths", "github, web", "", "mixtures fitted to the published skew of corpora (ours)"),
    ],
)  # fmt: skip

#: Transformers: model, GPUs per matrix, ranks, tokens, sequences per micro-batch, cluster, data-parallel copies, experts' spread.
MODELS: dict[str, tuple[str, int, int, int, int, str, int, int]] = {
    "gpt3-175b": ("gpt3-175b", 8, 8, 2048, 1, "dgx-h100", 1, 1),
    "llama3-70b-vocab": ("llama-3-70b", 4, 8, 8192, 1, "dgx-h100", 1, 1),
    "deepseek-like-h100": ("deepseek-v3", 1, 16, 4096, 1, "dgx-h100", 128, 64),
    "deepseek-like-910b": ("deepseek-v3", 1, 16, 4096, 1, "ascend-910b-node", 1024, 64),
}
PLANNED = {"gpt3-175b": (8, 16, 32, 64), "llama3-70b-vocab": (32, 64), "deepseek-like-h100": (32, 64), "deepseek-like-910b": (32, 64)}
SMALL_MODELS = ("bert-base", "bert-large", "resnet101", "resnet152")
CONTEXTS = {"8k": 8192, "32k": 32768, "192k": 196608}
#: By scale: factor of micro-batches, tokens of a batch of sequences, and the cases (all at scales but the smallest).
SIZE = {"tiny": (1, 1 << 18), "small": (1, 1 << 21), "large": (8, 1 << 22)}
TINY = ("gpt3-175b-m8", "bert-base-m8", "long-32k-web", "misfit-bert-base")


@pipeline.cases
def cases(scale: str) -> Iterator[Case]:
    """Large models to plan, small models on 8 GPUs, batches of long sequences, costs that planners misjudge, and real pipelines."""
    for case in _cases(*SIZE[scale]):
        if scale != "tiny" or case.name in TINY:
            yield case


def _cases(more: int, tokens: int) -> Iterator[Case]:
    for name, counts in PLANNED.items():
        for m in counts:
            kinds = {"layered", "simulated", *({"plan"} if m >= 32 else ())}
            yield Case(f"{name}-m{m}", _transformer, {"model": name, "micros": more * m}, frozenset(kinds))
    for name in SMALL_MODELS:
        for m in (8, 16):
            kind = "bert" if name.startswith("bert") else "resnet"
            make = _bert if kind == "bert" else _resnet
            yield Case(f"{name}-m{m}", make, {"model": name, "micros": more * m}, frozenset({"layered", "simulated", kind}))
    for corpus in ("github", "web"):
        for name, longest in CONTEXTS.items():
            yield Case(f"long-{name}-{corpus}", _long, {
                "model": "llama-2-13b", "corpus": corpus, "longest": longest, "tokens": tokens,
            }, frozenset({"sequences", "simulated", "long"}))  # fmt: skip
    misfit = frozenset({"layered", "simulated", "misfit"})
    yield Case("misfit-llama3-70b-vocab", _transformer, {"model": "llama3-70b-vocab", "micros": more * 32, "misfit": True}, misfit)
    yield Case("misfit-deepseek-like", _transformer, {"model": "deepseek-like-h100", "micros": more * 32, "misfit": True}, misfit)
    yield Case("misfit-bert-base", _bert, {"model": "bert-base", "micros": more * 16, "misfit": True}, misfit)
    yield Case("misfit-resnet152", _resnet, {"model": "resnet152", "micros": more * 16, "misfit": True}, misfit)
    yield Case("misfit-long", _long, {
        "model": "llama-2-13b", "corpus": "github", "longest": 32768, "tokens": tokens, "misfit": True,
    }, frozenset({"sequences", "simulated", "misfit"}))  # fmt: skip
    yield Case("real-equal", _sleeping, {"ranks": 4, "micros": 8, "layers": 8, "uneven": 0.0}, frozenset({"layered", "measured"}))
    yield Case("real-uneven", _sleeping, {"ranks": 4, "micros": 8, "layers": 12, "uneven": 0.4}, frozenset({"layered", "measured"}))


@dataclass(frozen=True)
class Reading:
    """How a profile of layers, a config.json, a file of lengths or a schedule is read, and the machine that it is planned for."""

    pp: int = parameter(4, "ranks of the pipeline", range=(1, 1024))
    micros: int = parameter(16, "micro-batches per step; where a model is given, the batch decides", range=(1, 1 << 16))
    capacity_gb: float = parameter(80.0, "memory of a device in GB (10⁹ bytes), for profiles", range=(1e-9, 1e9))
    state: float = parameter(1.0, "bytes that stay on the device per byte of param_bytes (8 with Adam in float32)", range=(0.0, 64.0))
    rate_gb_per_s: float = parameter(50.0, "rate of the link between ranks in GB/s, for profiles", range=(1e-6, 1e6))
    latency_us: float = parameter(10.0, "latency of that link in µs, for profiles", range=(0.0, 1e6))
    model: str = parameter(
        "llama-2-13b", "the model of a file of lengths: a name that `armillary.llm` knows or a config.json; without --work, the work",
        file=True,
    )  # fmt: skip
    cluster: str = parameter("dgx-h100", "the cluster for models and lengths: a preset or a cluster file", file=True)
    tp: int = parameter(1, "devices over which each matrix is split", range=(1, 1024))
    tokens: int = parameter(2048, "tokens of a sequence, for a config.json", range=(1, 1 << 24))
    batch: int = parameter(16, "sequences of a step, for a config.json", range=(1, 1 << 20))
    micro_batch: int = parameter(1, "sequences of a micro-batch, for a config.json", range=(1, 1 << 16))
    column: str = parameter("length", "the column of a table of sequences that holds their tokens")
    longest: int = parameter(0, "the most tokens of a sequence; 0 takes the longest in the file", range=(0, 1 << 24))
    profile: str = parameter(
        "", "the profile of the layers that a schedule file runs; without it every stage takes 1 ms per pass", file=True
    )


@pipeline.read(Reading, work_option="model")
def read(path: Path, how: Reading) -> LayeredWork | SequenceWork:
    """Reads a profile CSV, a Hugging Face config.json, sequence lengths (text, CSV, JSONL, Parquet) or torch's schedule CSV."""
    from .readers.own_work import read_work

    return read_work(path, how)


@pipeline.own_cases
def own_cases(work: LayeredWork | SequenceWork, name: str, how: Reading) -> Iterator[Case]:
    """One case per file."""
    from .chunks.work import SequenceWork

    if isinstance(work, SequenceWork):
        facts: dict[str, Any] = {"sequences": len(work.lengths), "tokens": work.tokens, "ranks": work.ranks, "device": work.device}
        yield Case(name, parameters=facts, kinds=frozenset({"sequences", "simulated", "file"}))
    else:
        facts = {"layers": work.layers.body, "ranks": work.ranks, "micros": work.micros, "device": work.device}
        yield Case(name, parameters=facts, kinds=frozenset({"layered", "simulated", "file"}))


@pipeline.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a profile of an embedding, eight layers and a heavy loss."""
    from .readers.profile_csv import COLUMNS

    path = folder / "profile.csv"
    rows = [["embedding", "head", 0.5, 0, 0.5, 0, 0, 4e9, 0, 0, 0, 2e7]]
    rows += [[f"layer {i}", "body", 10, 12, 8, 3, 10, 3e9, 2e9, 1.2e9, 1e8, 2e7] for i in range(8)]
    rows += [["loss", "tail", 8, 8, 8, 0, 0, 4e9, 1e9, 1e9, 1e9, 0]]
    path.write_text(",".join(COLUMNS) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path, {"pp": "4", "micros": "8", "capacity_gb": "24"}


@pipeline.run
def run(technique: Any, case: Case) -> Outcome:
    """Plans, then simulates the plan on the costs as they turn out; in measured cases the plan runs on real processes."""
    work = case.workload
    plan = technique.plan(work)
    if "measured" in case.kinds:
        return _run_real(plan, work)
    found = work.simulate(plan)
    left = [
        Artifact.table("plan", [_plan_row(work, plan, found)]),
        Artifact.table("ranks", _rank_rows(found)),
        Artifact.timeline(found.timeline()),
    ]
    return Outcome(_metrics(work, plan, found), left)


def _metrics(work: Any, plan: Any, found: Simulated) -> dict[str, float]:
    from .planning.layers import LayeredWork

    units = work.units * work.micros if isinstance(work, LayeredWork) else work.tokens
    return {
        "step_time_s": found.makespan,
        "bubble_fraction": found.bubble_fraction,
        "useful_fraction": found.useful_fraction,
        "tokens_per_s": units / found.makespan,
        "peak_memory_bytes": float(found.peak.max()),
        "memory_imbalance": float(found.peak.max() / found.peak.min()) if found.peak.min() > 0 else 1.0,
        "memory_utilisation": float((found.peak / work.capacity).mean()),
        "p2p_bytes": found.sent_bytes,
        "promise_error": abs(plan.predicted / found.makespan - 1),
    }


def _rank_rows(found: Simulated) -> list[dict[str, Any]]:
    return [
        {"rank": r, "busy_s": float(found.busy[r]), "recomputed_s": float(found.recomputed[r]), "peak_bytes": float(found.peak[r])}
        for r in range(len(found.peak))
    ]


def _plan_row(work: Any, plan: StagePlan | ChunkPlan, found: Simulated) -> dict[str, Any]:
    """The plan in a few words; `recomputed` is the share of the ranks' busy time in which they compute something again."""
    return {
        "order": plan.order,
        "source": str(plan.notes.get("source", "")),
        "ranks": work.ranks,
        "stages": plan.schedule.stages,
        "micro_batches": plan.schedule.micros,
        "recomputed": float(found.recomputed.sum() / found.busy.sum()) if found.busy.sum() else 0.0,
        "peak_bytes": float(found.peak.max()),
        "capacity_bytes": work.capacity,
        "promised_s": plan.predicted,
    }


def _run_real(plan: StagePlan, work: LayeredWork) -> Outcome:
    from .execution.real import run_real

    if plan.copies > 1:
        raise NotForThisCase("torch's runtime has one direction")
    if plan.division.choice.any():
        raise NotForThisCase("the real pipeline recomputes nothing")
    return Outcome({"step_time_s": run_real(plan.schedule, plan.division.seconds[:3]).seconds})


@pipeline.answer
def answer(result: Result) -> str:
    """Names the fastest plan of each kind of work, its gain over 1F1B and its bubble."""
    if "step_time_s" not in result.metrics:
        return "Ask for the metric step_time_s to get an answer."
    said, parts = [], {"layered": "layers", "sequences": "long sequences"}
    for kind, name in parts.items():
        mine = [case for case, facts in result.cases.items() if kind in facts["kinds"] and result.best(case, "step_time_s")]
        if not mine:
            continue
        firsts = [best for case in mine if (best := result.best(case, "step_time_s"))]
        winners = sorted(set(firsts), key=lambda t: (-firsts.count(t), t))
        first = winners[0]
        won = [case for case, best in zip(mine, firsts, strict=True) if best == first]
        gains = [ratio for case in won if (ratio := result.ratio(case, "step_time_s", first, "1f1b"))]
        where = f"on {won[0]}" if len(mine) == 1 else f"on {len(won)} of {len(mine)} cases of {name}"
        if 2 * len(won) <= len(mine) and len(winners) > 1:
            said.append(
                f"No technique has the shortest step on most of the {len(mine)} cases of {name}; {listed(winners)} each have it on some."
            )
            continue
        gain = f", {_span(gains)} times as fast as 1f1b" if gains and first != "1f1b" else ""
        shares = [] if "bubble_fraction" not in result.metrics else [result.on(case, "bubble_fraction").get(first) for case in won]
        bubbles = [100 * share for share in shares if share is not None]
        bubble = f" with bubbles of {_span(bubbles, '.0f')} %" if bubbles else ""
        if len(mine) == 1 and (plan := result.artifact_rows(first, won[0], "plan")):
            said.append(_plan_in_words(first, won[0], plan[0], gain, bubble))
            continue
        others = f"; {listed(winners[1:])} {'is' if len(winners) == 2 else 'are'} the fastest elsewhere" if winners[1:] else ""
        said.append(f"{first} has the shortest step {where}{gain}{bubble}{others}.")
    return " ".join(said) or "No plan fits the memory of these devices."


def _plan_in_words(technique: str, case: str, plan: Mapping[str, Any], gain: str, bubble: str) -> str:
    """What to run, and what it costs in memory."""
    order = "" if plan["order"] in (None, "", technique) else f" with the order {plan['order']}"
    again = f", spends {100 * plan['recomputed']:.0f} % of the busy time on recomputation" if plan["recomputed"] else ""
    return (
        f"{technique} has the shortest step on {case}{gain}{bubble}. "
        f"It cuts the layers into {counted(plan['stages'], 'stage')} on {counted(plan['ranks'], 'rank')}{order}, runs "
        f"{counted(plan['micro_batches'], 'micro-batch', 'micro-batches')}{again}, and fills {plan['peak_bytes'] / 1e9:.1f} of "
        f"{plan['capacity_bytes'] / 1e9:.1f} GB on the fullest rank."
    )


def _span(values: Sequence[float], form: str = ".2f") -> str:
    low, high = (format(pick(values), form) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


@pipeline.plots
def plots(result: Result) -> Sequence[Any]:
    """Step time relative to the work, bubbles and memory, by case."""
    drawn = []
    for metric, title in (
        ("step_time_s", "Seconds of a step"),
        ("bubble_fraction", "Share of time in bubbles"),
        ("memory_utilisation", "Share of memory that is used"),
    ):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric == "step_time_s")
    return drawn


def _transformer(case: Case, rng: np.random.Generator) -> LayeredWork:
    from armillary.llm import Model, Plan

    from .workload import transformer

    model, tp, pp, tokens, batch, cluster, dp, ep = MODELS[case.parameters["model"]]
    plan = Plan(tp=tp, pp=pp, dp=dp, ep=ep, fsdp=dp, zero=1, micro_batch=batch, sequence_parallel=tp > 1)
    return transformer(Model.preset(model), plan, tokens, case.parameters["micros"], cluster, rng=_misfit(case.parameters, rng))


def _bert(case: Case, rng: np.random.Generator) -> LayeredWork:
    from armillary.llm import Model, Plan

    from .workload import transformer

    p = case.parameters
    return transformer(
        Model.preset(p["model"]),
        Plan(pp=8, micro_batch=64),
        512,
        p["micros"],
        "dgx-a100",
        halves=True,
        scored=80 / 512,
        rng=_misfit(p, rng),
    )


def _resnet(case: Case, rng: np.random.Generator) -> LayeredWork:
    from .workload import resnet

    p = case.parameters
    return resnet(p["model"], 64, p["micros"], 8, "dgx-a100", rng=_misfit(p, rng))


def _long(case: Case, rng: np.random.Generator) -> SequenceWork:
    from armillary.llm import Model, Plan

    from .workload import draw_lengths, sequences

    p = case.parameters
    lengths = draw_lengths(p["corpus"], p["tokens"], p["longest"], rng)
    return sequences(
        Model.preset(p["model"]), Plan(pp=8, tp=4, sequence_parallel=True), lengths, p["longest"], "dgx-a100", rng=_misfit(p, rng)
    )


def _sleeping(case: Case, rng: np.random.Generator) -> LayeredWork:
    from .execution.real import sleeping_layers
    from .planning.layers import LayeredWork

    p = case.parameters
    return LayeredWork(
        sleeping_layers(p["layers"], p["uneven"], rng), p["ranks"], p["micros"], 1e12, unit="samples", device="sleeping stages"
    )


def _misfit(p: Mapping[str, Any], rng: np.random.Generator) -> np.random.Generator | None:
    return rng if p.get("misfit") else None
