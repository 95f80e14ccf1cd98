"""Most of a step of RL post-training is spent on waiting for a few long answers; the rollout schedulers here shorten it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .simulation.setup import Setup
    from .workload import RolloutWork

rollout = Arena(
    "training/rollout",
    question="Which rollout scheduler shortens the steps of synchronous RL post-training without changing the algorithm?",
    metrics=[
        Metric("step_s", unit="s", doc="rollout, rewards, inference, training and weights, per P0 × R0 responses"),
        Metric("rollout_s", unit="s", doc="seconds of generation only"),
        Metric("rollout_tokens_per_s", unit="tok/s", better="higher", doc="tokens that are trained on, over the seconds of the rollout"),
        Metric("all_tokens_per_s", unit="tok/s", better=None, doc="tokens, including those of responses that were given up"),
        Metric("tail_s", unit="s", doc="seconds from the moment when nine tenths of the responses have ended to the last"),
        Metric("bubble_fraction", scale="difference", doc="share of the instance-seconds of the rollout in which nothing ran"),
        Metric("preemptions", scale="difference", doc="requests per step that were sent back because KV ran out"),
        Metric("wasted_tokens", scale="difference", doc="tokens per step that were generated and not trained on"),
        Metric("offpolicy_fraction", scale="difference", doc="share of the trained tokens that older weights generated"),
        Metric("sample_bias", scale="difference", doc="Kolmogorov-Smirnov distance between the trained lengths and those of all prompts"),
    ],
    techniques={
        "verl": ".verl:Verl",
        "rlhfuse": ".rlhfuse:RlhFuse",
        "partial-rollout": ".partial_rollout:PartialRollout",
        "one-step-async": ".one_step_async:OneStepAsync",
        "rollpacker": ".rollpacker:RollPacker",
        "seer": ".seer:Seer",
        "rollpacker+seer": ".rollpacker_seer:RollPackerSeer",
        "oracle-lpt": ".oracle_lpt:OracleLpt",
    },
    papers={"rollpacker": "rollpacker", "seer": "seer"},
    baseline="verl",
    tradeoff=("step_s", "offpolicy_fraction"),
    repeats=1,
    constants=[
        Constant("iteration", "armillary.llm, h800", "s", "not calibrated; the host takes 2.44 ms and 7.2 µs per request, as for vLLM"),
        Constant("learning", "armillary.llm", "s", "training recomputes fully and packs; reference inference is one of its four passes"),
        Constant("reward workers", 64, "", "programs tested at once; our choice"),
        Constant("judge sharing", "1.08 and 1.35", "", "slowdown with partitioned multiprocessors and without; assumed"),
        Constant("KV pool", "1 TB and 8 TB", "", "host memory and SSD per node, 36 GB/s per device port, 12 GB/s per SSD array (ours)"),
        Constant("drafts", "1.70, 2.04, 2.32, 2.53", "", "tokens per iteration with 0, 1, 5 and 15 siblings, read from arXiv 2511.14617"),
    ],
)  # fmt: skip

#: Each mix has its model, GPUs, GPUs per instance and per training copy, and most tokens of a response.
MIXES = {
    "mix-7b-8k": ("qwen2.5-7b", 32, 2, 2, 8192),
    "mix-14b-16k": ("qwen2.5-14b", 64, 2, 2, 16384),
    "mix-32b-32k": ("qwen2.5-32b", 128, 4, 4, 32768),
    "mix-14b-32k": ("qwen2.5-14b", 64, 2, 2, 32768),
}
MIX_SIZE = {"tiny": (8, 16, 5), "small": (1, 128, 10), "large": (1, 128, 50)}
#: Each set-up of long reasoning has its model, GPUs, GPUs per instance, TP and PP in training, prompts, responses, most tokens of a
#: response, their mean, the spreads between and within groups, and its kind.
CHAINS: dict[str, tuple[str, int, int, int, int, int, int, int, float, float, float, str]] = {
    "cot-moonlight-64k": ("moonlight-16b-a3b", 32, 1, 1, 1, 400, 8, 65536, 22e3, 0.9, 0.35, "cot"),
    "cot-qwen2-vl-40k": ("qwen2-vl-72b", 128, 8, 8, 1, 600, 16, 40960, 7.6e3, 0.9, 0.35, "cot"),
    "cot-kimi-k2-96k": ("kimi-k2", 256, 32, 8, 4, 800, 8, 98304, 39e3, 0.9, 0.35, "cot"),
    "cot-moonlight-32k": ("moonlight-16b-a3b", 16, 1, 1, 1, 400, 8, 32768, 11e3, 0.9, 0.35, "cot"),
    "unlike-moonlight-64k": ("moonlight-16b-a3b", 32, 1, 1, 1, 400, 8, 65536, 22e3, 0.0, 0.966, "unlike"),
}
#: By scale: the divisors of GPUs and of prompts, and the number of steps.
CHAIN_SIZE = {"tiny": (4, 16, 2), "small": (1, 1, 2), "large": (1, 1, 10)}


@rollout.cases
def cases(scale: str) -> Iterator[Case]:
    """Four mixes of math, code and judged prompts, four set-ups of long reasoning (the papers' three and one of ours each), and one whose
    siblings have nothing in common.
    """
    fewer, p0, steps = MIX_SIZE[scale]
    for name, (model, gpus, tp, train_tp, longest) in MIXES.items():
        yield Case(name, _mix, {
            "model": model, "gpus": gpus // fewer, "tp": tp, "train_tp": train_tp, "max_length": longest, "p0": p0, "r0": 8, "steps": steps,
        }, frozenset({"mix"}))  # fmt: skip
    fewer, less, steps = CHAIN_SIZE[scale]
    for name, (model, gpus, tp, train_tp, pp, p0, r0, longest, mean, between, within, kind) in CHAINS.items():
        yield Case(name, _chain, {
            "model": model, "gpus": max(gpus // fewer, 2 * tp), "tp": tp, "train_tp": train_tp, "train_pp": pp, "p0": p0 // less, "r0": r0,
            "max_length": longest, "mean": mean, "between": between, "within": within, "steps": steps,
        }, frozenset({kind}))  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How a log of response lengths is read, and the machine on which its rollouts are simulated."""

    model: str = parameter("qwen2.5-7b", "a model of the built-in set-ups or of `armillary.llm`, or a config.json", file=True)
    device: str = parameter("h800", "the GPU, by its name in the catalogue of devices")
    gpus: int = parameter(32, "the number of GPUs", range=(1, 1 << 16))
    tp: int = parameter(2, "GPUs per rollout instance", range=(1, 1 << 16))
    train: int = parameter(2, "GPUs per data-parallel copy in training", range=(1, 1 << 16))
    longest: int = parameter(32768, "the most tokens that a response may have", range=(1, 1 << 24))
    limit: int = parameter(0, "the number of steps to read; 0 reads all of them", range=(0, 2**40))
    tokens: str = parameter("", "a JSONL file of token streams, on which accepted drafts are measured instead of published", file=True)


@rollout.read(Reading)
def read(path: Path, how: Reading) -> RolloutWork:
    """Reads response lengths from the log of an RL framework (CSV, JSONL or Parquet), one row per response."""
    from .drafting import acceptance
    from .simulation.setup import Setup, find_model
    from .workload import read_log, read_streams

    accept = None
    if how.tokens:
        means = acceptance.measured(read_streams(Path(how.tokens)))
        accept = acceptance.table(acceptance.chances(len(means) - 1, means.tolist(), range(len(means))))
    setup = Setup(find_model(how.model), how.device, how.gpus, how.tp, 1, 1, how.longest, train_tp=how.train)
    setup.kv_tokens()
    return read_log(path, setup, limit=how.limit, accept=accept)


@rollout.own_cases
def own_cases(work: RolloutWork, name: str, how: Reading) -> Iterator[Case]:
    """The log as one epoch."""
    facts = {"model": work.setup.shape.name, "device": how.device, "gpus": how.gpus, "tp": how.tp, "notes": list(work.notes)}
    yield Case(name, parameters=facts, kinds=frozenset({"file"}))


@rollout.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two steps of five prompts with two responses each, and token streams of two siblings."""
    log, streams = folder / "lengths.csv", folder / "streams.jsonl"
    rows = [f"{s},p{p},{r},50,{20 + 30 * p + 7 * r},1.5,code" for s in range(2) for p in range(5) for r in range(2)]
    log.write_text("step,prompt_id,response_id,prompt_tokens,response_tokens,reward_s,task\n" + "\n".join(rows) + "\n")
    streams.write_text("".join(f'{{"group": "p0", "request": {r}, "tokens": {[1, 2, 3, 4] * 8}}}\n' for r in range(2)))
    return log, {"gpus": "4", "longest": "1000", "tokens": str(streams)}


@rollout.run
def run(technique: Any, case: Case) -> Outcome:
    """Simulates an epoch, step by step."""
    from .simulation.steps import metrics, timeline

    steps = technique.steps(case.workload)
    left = [
        Artifact.table("steps", [step.row() for step in steps]),
        Artifact.quantiles("step", [step.seconds for step in steps], "s"),
        Artifact.timeline(timeline(steps)),
    ]
    return Outcome(metrics(steps, case.workload), left)


@rollout.answer
def answer(result: Result) -> str:
    """Names the scheduler with the shortest on-policy steps, and says whether an off-policy one would be faster."""
    if "step_s" not in result.metrics:
        return "Ask for the metric step_s to get an answer."
    ranked = {case: found for case in result.cases if (found := _on_policy(result, case))}
    if not ranked:
        return "No rollout was simulated to the end."
    firsts = [next(iter(found)) for found in ranked.values()]
    best = max(dict.fromkeys(firsts), key=firsts.count)
    won = [case for case, first in zip(ranked, firsts, strict=True) if first == best]
    seconds = [ranked[case][best] for case in won]
    said = f"{best} has the shortest on-policy steps on " + (won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases")
    said += f" ({_span(seconds, '.0f')} s per step)"
    gains = [ratio for case in won if best != "verl" and (ratio := result.ratio(case, "step_s", best, "verl"))]
    said += f", {_span(gains, '.2f')} times as fast as verl." if gains else "."
    faster = [case for case, first in zip(ranked, firsts, strict=True) if _off_policy_best(result, case) < ranked[case][first]]
    if faster:
        said += f" An off-policy scheduler would be faster on {faster[0] if len(faster) == 1 else f'{len(faster)} of them'}."
    notes = [note for case in ranked for note in result.cases[case]["parameters"].get("notes", ())]
    return said + "".join(f" ({note}.)" for note in notes[:1])


def _off_policy(result: Result, case: str) -> set[str]:
    """The techniques that train on tokens of older weights on this case."""
    known = "offpolicy_fraction" in result.metrics
    return {t for t, share in result.on(case, "offpolicy_fraction").items() if share > 0} if known else set()


def _on_policy(result: Result, case: str) -> dict[str, float]:
    oracles = {t for t in result.techniques if t in rollout.techniques and rollout.technique(t).oracle}
    return result.on(case, "step_s", without=oracles | _off_policy(result, case))


def _off_policy_best(result: Result, case: str) -> float:
    old = _off_policy(result, case)
    return min((seconds for t, seconds in result.on(case, "step_s").items() if t in old), default=float("inf"))


def _span(values: Sequence[float], form: str) -> str:
    low, high = (format(pick(values), form) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


@rollout.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds per step and seconds of the tail, by case."""
    drawn = []
    for metric, title in (("step_s", "Seconds per step"), ("tail_s", "Seconds from nine tenths of the responses to the last")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, y="s", log_y=metric == "step_s")
    return drawn


def _setup(p: Mapping[str, Any]) -> Setup:
    from .simulation.setup import Setup

    names = ("model", "device", "gpus", "tp", "train_tp", "train_pp", "p0", "r0", "max_length")
    return Setup(**{name: p[name] for name in names if name in p})


def _mix(case: Case, rng: np.random.Generator) -> RolloutWork:
    from .workload import mix

    return mix(_setup(case.parameters), case.parameters["steps"], rng)


def _chain(case: Case, rng: np.random.Generator) -> RolloutWork:
    from .workload import chain_of_thought

    p = case.parameters
    return chain_of_thought(_setup(p), p["steps"], p["mean"], rng, between=p["between"], within=p["within"])
