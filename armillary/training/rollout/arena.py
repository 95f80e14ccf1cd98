"""Most of a step of RL post-training waits for a few long answers: which rollout scheduler shortens it without changing the algorithm?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

rollout = Arena(
    "training/rollout",
    question="Which rollout scheduler shortens the steps of synchronous RL post-training without changing the algorithm?",
    metrics=[
        Metric("step_s", unit="s", better="lower", doc="rollout, rewards, inference, training, weights; a step of P0 × R0 responses"),
        Metric("rollout_s", unit="s", better="lower", doc="generation alone"),
        Metric("rollout_tokens_per_s", unit="tok/s", better="higher", doc="tokens that are trained on, over the rollout's seconds"),
        Metric("all_tokens_per_s", unit="tok/s", better=None, doc="with tokens of responses that were given up"),
        Metric("tail_s", unit="s", better="lower", doc="from nine tenths of the responses to the last"),
        Metric("bubble_fraction", better="lower", scale="difference", doc="instance-seconds of the rollout in which nothing ran"),
        Metric("preemptions", better="lower", scale="difference", doc="requests sent back for want of KV, a step"),
        Metric("wasted_tokens", better="lower", scale="difference", doc="tokens made and not trained on, a step"),
        Metric("offpolicy_fraction", better="lower", scale="difference", doc="trained tokens that older weights made"),
        Metric("sample_bias", better="lower", scale="difference", doc="KS distance of trained lengths from all prompts'"),
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
    uses=("armillary.llm",),
    repeats=1,
    constants=[
        Constant("iteration", "armillary.llm, h800", "s", "uncalibrated device; host: 2.44 ms and 7.2 µs a request, vLLM on H100"),
        Constant("learning", "armillary.llm", "s", "training with full recomputation, packed; reference inference one of its four passes"),
        Constant("reward workers", 64, "", "programs under test at once; ours"),
        Constant("judge sharing", "1.08 and 1.35", "", "with partitioned multiprocessors and without; assumed"),
        Constant("KV pool", "1 TB and 8 TB", "", "host memory and SSD of a node, 36 GB/s a device's port, 12 GB/s SSD; ours"),
        Constant("drafts", "1.70, 2.04, 2.32, 2.53", "", "tokens an iteration with 0, 1, 5, 15 siblings: arXiv 2511.14617, about"),
    ],
)  # fmt: skip

#: Mixes: model, GPUs, devices of an instance, of a training copy, most tokens.
MIXES = {
    "mix-7b-8k": ("qwen2.5-7b", 32, 2, 2, 8192),
    "mix-14b-16k": ("qwen2.5-14b", 64, 2, 2, 16384),
    "mix-32b-32k": ("qwen2.5-32b", 128, 4, 4, 32768),
}
MIX_SIZE = {"tiny": (8, 16, 5), "small": (1, 128, 10), "large": (1, 128, 50)}
#: Long chains of thought: model, GPUs, devices of an instance, training TP and PP, prompts, responses, most tokens,
#: their mean, spreads between and within groups, kind.
CHAINS: dict[str, tuple[str, int, int, int, int, int, int, int, float, float, float, str]] = {
    "cot-moonlight-64k": ("moonlight-16b-a3b", 32, 1, 1, 1, 400, 8, 65536, 22e3, 0.9, 0.35, "cot"),
    "cot-qwen2-vl-40k": ("qwen2-vl-72b", 128, 8, 8, 1, 600, 16, 40960, 7.6e3, 0.9, 0.35, "cot"),
    "cot-kimi-k2-96k": ("kimi-k2", 256, 32, 8, 4, 800, 8, 98304, 39e3, 0.9, 0.35, "cot"),
    "unlike-moonlight-64k": ("moonlight-16b-a3b", 32, 1, 1, 1, 400, 8, 65536, 22e3, 0.0, 0.966, "unlike"),
}
#: GPUs and prompts are divided by so much; steps.
CHAIN_SIZE = {"tiny": (4, 16, 2), "small": (1, 1, 2), "large": (1, 1, 10)}


@rollout.cases
def cases(scale: str) -> Iterator[Case]:
    """Three mixes of math, code and judged prompts; three set-ups of long reasoning, and one whose siblings have nothing in common."""
    fewer, p0, steps = MIX_SIZE[scale]
    for name, (model, gpus, tp, train_tp, longest) in MIXES.items():
        facts = {
            "model": model,
            "gpus": gpus // fewer,
            "tp": tp,
            "train_tp": train_tp,
            "max_length": longest,
            "p0": p0,
            "r0": 8,
            "steps": steps,
        }
        yield Case(name, _mix, facts, frozenset({"mix"}))
    fewer, less, steps = CHAIN_SIZE[scale]
    for name, (model, gpus, tp, train_tp, pp, p0, r0, longest, mean, between, within, kind) in CHAINS.items():
        yield Case(name, _chain, {
            "model": model, "gpus": max(gpus // fewer, 2 * tp), "tp": tp, "train_tp": train_tp, "train_pp": pp, "p0": p0 // less, "r0": r0,
            "max_length": longest, "mean": mean, "between": between, "within": within, "steps": steps,
        }, frozenset({kind}))  # fmt: skip


@rollout.read
def read(
    path: Path, *, model: str = "qwen2.5-7b", device: str = "h800", gpus: int = 32, tp: int = 2, train: int = 2, longest: int = 32768,
    limit: int = 0, tokens: str = "",
) -> Iterator[Case]:  # fmt: skip
    """Response lengths from an RL framework's log: CSV, JSONL or Parquet with step,prompt_id,response_id,prompt_tokens,response_tokens.

    `reward_s` and `task` (math, code, judge) are optional columns. `tokens`: a JSONL file of token streams (group, request, tokens) on
    which accepted drafts are measured instead of taken from the paper. `longest`: the most tokens of a response; `train`: devices
    of one copy in training; `limit`: the first so many steps.
    """
    how = {
        "model": model,
        "device": device,
        "gpus": gpus,
        "tp": tp,
        "train_tp": train,
        "max_length": longest,
        "limit": limit,
        "tokens": tokens,
    }
    if limit < 0:
        raise InputError(f"--limit: found {limit}; expected 0 or more")
    # Read now: what is wrong with the file is said before anything is run or written.
    work = _log(path, path.stat().st_mtime_ns, tuple(how.items()))
    yield Case(path.name, _load, {**how, "path": str(path), "notes": list(work.notes)}, frozenset({"file"}), source=path)


@rollout.run
def run(technique: Any, case: Case) -> Outcome:
    """An epoch of the technique's steps."""
    from .steps import metrics, timeline

    steps = technique.steps(case.workload)
    head = "kind,tp,rollout_s,reward_s,learn_s,sync_s,seconds,prompts,responses,tokens,preemptions\n"
    rows = "".join(
        f"{s.kind or 'step'},{s.tp},{s.rollout_s:.6g},{s.reward_s:.6g},{s.learn_s:.6g},{s.sync_s:.6g},{s.seconds:.6g},{len(s.prompts)},"
        f"{len(s.lengths)},{int(s.lengths.sum())},{s.preemptions}\n"
        for s in steps
    )
    left = [
        Artifact("steps.csv", "text/csv", (head + rows).encode()),
        Artifact.quantiles("step", [s.seconds for s in steps], "s"),
        Artifact("timeline.json", "application/json", json.dumps(timeline(steps)).encode()),
    ]
    return Outcome(metrics(steps, case.workload), left)


@rollout.answer
def answer(result: Result) -> str:
    """Which scheduler has the shortest steps without touching the policy, and what the fastest of the others would change."""
    if "step_s" not in result.metrics:
        return "Give it the metric step_s to be answered."
    said = []
    for case, facts in result.cases.items():
        seconds = {t: found[case] for t in result.techniques if case in (found := result.medians(t, "step_s"))}
        old = {t: result.medians(t, "offpolicy_fraction").get(case, 0.0) for t in seconds} if "offpolicy_fraction" in result.metrics else {}
        honest = {t: s for t, s in seconds.items() if old.get(t, 0.0) == 0.0 and not rollout.technique(t).oracle} if seconds else {}
        if not honest:
            continue
        best = min(honest, key=lambda t: honest[t])
        line = f"{case}: {best}, {honest[best]:.0f} s a step"
        if "verl" in honest and best != "verl":
            line += f", {honest['verl'] / honest[best]:.2f} times as fast as verl"
        faster = [t for t in seconds if old.get(t, 0.0) > 0 and seconds[t] < honest[best]]
        if faster:
            first = min(faster, key=lambda t: seconds[t])
            line += f" ({first} {seconds[first]:.0f} s, with {100 * old[first]:.0f} % of tokens from older weights)"
        notes = "".join(f" ({note})" for note in facts["parameters"].get("notes", ()))
        said.append(f"{line}{notes}.")
    return " ".join(said) or "Nothing was rolled out."


@rollout.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds of a step, and of the tail, by case."""
    from armillary.figures import panels

    drawn = []
    for metric, title in (("step_s", "Seconds of a step"), ("tail_s", "Seconds from nine tenths of the responses to the last")):
        if metric in result.metrics:
            lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {"": {}}
            for technique in result.techniques:
                found = result.medians(technique, metric)
                if found:
                    lines[""][technique] = list(found.items())
            if lines[""]:
                drawn.append(panels(lines, title, "", "s", log_y=metric == "step_s"))
    return drawn


def _setup(p: Any) -> Any:
    from .setup import Setup

    names = ("model", "device", "gpus", "tp", "train_tp", "train_pp", "p0", "r0", "max_length")
    return Setup(**{name: p[name] for name in names if name in p})


def _mix(case: Case, rng: np.random.Generator) -> Any:
    from .workload import mix

    return mix(_setup(case.parameters), case.parameters["steps"], rng)


def _chain(case: Case, rng: np.random.Generator) -> Any:
    from .workload import chain_of_thought

    p = case.parameters
    return chain_of_thought(_setup(p), p["steps"], p["mean"], rng, between=p["between"], within=p["within"])


def _load(case: Case, rng: np.random.Generator) -> Any:
    p = case.parameters
    how = tuple((name, p[name]) for name in ("model", "device", "gpus", "tp", "train_tp", "max_length", "limit", "tokens"))
    return _log(Path(p["path"]), Path(p["path"]).stat().st_mtime_ns, how)


@functools.lru_cache(maxsize=4)
def _log(path: Path, changed_ns: int, how: tuple[tuple[str, Any], ...]) -> Any:
    from . import acceptance
    from .workload import read_log, read_streams

    p = dict(how)
    accept = None
    if p["tokens"]:
        streams = Path(p["tokens"])
        if not streams.is_file():
            raise InputError("no such file", where=str(streams))
        means = acceptance.measured(read_streams(streams))
        accept = acceptance.table(acceptance.chances(len(means) - 1, means.tolist(), range(len(means))))
    setup = _setup({**p, "p0": 1, "r0": 1})
    setup.kv_tokens()
    return read_log(path, setup, limit=p["limit"], accept=accept)
