"""One GPU of the node dies in the middle of serving: how much throughput is kept, how long is the hole, and what is lost?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

_LOSS = frozenset({"loss"})

resilience = Arena(
    "serving/resilience",
    question="One GPU of my 8-GPU node dies while it serves: how much throughput do I keep, how long is the hole, and what is lost?",
    metrics=[
        Metric("token_throughput", unit="tok/s", better="higher", kind="simulated", doc="prompts and outputs, over the window"),
        Metric("throughput_degraded", unit="tok/s", better="higher", kind="simulated", on=_LOSS, doc="while a GPU is gone, hole included"),
        Metric("throughput_after", unit="tok/s", better="higher", kind="simulated", on=_LOSS, doc="in the last half of that time"),
        Metric("recovery_s", unit="s", better="lower", kind="simulated", on=_LOSS, doc="loss to first new token, median"),
        Metric("recovery_p99_s", unit="s", better="lower", kind="simulated", on=_LOSS, doc="the same, that 99 % do not exceed"),
        Metric("kv_capacity", unit="tokens", better="higher", kind="modelled", doc="of the smallest group that served"),
        Metric("imbalance", better="lower", kind="modelled", doc="max/mean over GPUs of memory and of compute, the worst of all layouts"),
        Metric("rank_imbalance", better="lower", kind="simulated", doc="attention of the busiest GPU over the mean, as requests lay"),
        Metric("lost_tokens", unit="tokens", better="lower", kind="simulated", scale="difference", doc="computed again after losses"),
        Metric("host_bw", unit="GB/s", better=None, kind="simulated", doc="copied to the mirror in host memory"),
    ],
    techniques={
        "failsafe": ".failsafe:FailSafe",
        "routed-tp": ".routed_tp:RoutedTp",
        "hybrid-tp": ".hybrid_tp:HybridTp",
        "cyclic-tp": ".cyclic_tp:CyclicTp",
        "nonuniform-tp": ".nonuniform_tp:NonuniformTp",
        "restore-recompute": ".restore_recompute:RestoreRecompute",
        "restart-keep": ".restart_keep:RestartKeep",
        "spare": ".spare:Spare",
        "replicate-2": ".replicate_2:Replicate2",
        "no-fault": ".no_fault:NoFault",
    },
    papers={"failsafe": "failsafe"},
    baseline="restore-recompute",
    tradeoff=("recovery_s", "throughput_degraded"),
    uses=("armillary.llm", "armillary.engine"),
    repeats=1,
    constants=[
        Constant("detection", 0.1, "s", "PyTorch's watchdog looks at collectives every 100 ms; equal for all"),
        Constant("regroup", 0.05, "s", "ours: communicators of survivors are made ahead, for failsafe, its parts and spare"),
        Constant("restart", 20.0, "s", "an engine's process up to the loading of weights; a parameter of the techniques that restart"),
        Constant("PCIe", "55", "GB/s", "a GPU's link to the host, each way: 63 GB/s of PCIe 5.0 x16 less protocol"),
        Constant("NVLink", "450", "GB/s", "a GPU's to all others, each way (NVIDIA DGX H100 data sheet: 900 both ways)"),
        Constant("engine", "8192 tokens, 1024 sequences", "", "as vLLM starts its server on an H100"),
        Constant("MTBF", 50_000.0, "GPU h", "419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 herd of models, 2024)"),
        Constant("repair", "1800, sigma 0.8", "s", "lognormal; ours"),
    ],
)  # fmt: skip

#: Iterations that the timeline of a unit keeps.
TIMELINE_SLICES = 20_000
WINDOW_S = {"tiny": 40.0, "small": 600.0, "large": 3600.0}
_70B = "llama-3.1-70b"
#: Model, traffic, requests a second, losses (None: drawn), repair as a share of the window, kinds. "busy" is more than eight GPUs can do
#: (by about a quarter), so throughput is capacity; the others are about half of it.
CASES: dict[str, tuple[str, str, float, int | None, float | None, tuple[str, ...]]] = {
    "chat-1-loss": (_70B, "azure-conv", 17.0, 1, None, ("busy", "one-loss", "loss")),
    "chat-2-losses": (_70B, "azure-conv", 17.0, 2, None, ("busy", "two-losses", "loss")),
    "chat-3-losses": (_70B, "azure-conv", 17.0, 3, None, ("busy", "three-losses", "loss")),
    "chat-half-load": (_70B, "azure-conv", 6.5, 1, None, ("one-loss", "loss")),
    "chat-repair": (_70B, "azure-conv", 6.5, 1, 0.25, ("repair", "loss")),
    "long-context": (_70B, "long-context", 1.5, 1, None, ("busy", "one-loss", "loss")),
    "qwen-1-loss": ("qwen2.5-72b", "azure-conv", 17.0, 1, None, ("busy", "one-loss", "loss")),
    "mixtral-1-loss": ("mixtral-8x22b", "azure-conv", 30.0, 1, None, ("busy", "loss", "too-large-for-4")),
    "random-faults": (_70B, "azure-conv", 6.5, None, None, ("random",)),
}


@resilience.cases
def cases(scale: str) -> Iterator[Case]:
    """Chat and long contexts on Llama-3.1-70B, chat on Qwen2.5-72B and Mixtral-8x22B: one to three losses, a repair, random faults."""
    for name, (model, like, rate, losses, repair, kinds) in CASES.items():
        facts = {"model": model, "like": like, "rate": rate, "losses": losses, "repair": repair, "window_s": WINDOW_S[scale]}
        if losses is None:
            # Four accelerated hours' faults (6.4 on average), whatever the window: as much more frequent, repairs as much shorter.
            pace = 4 * 3600.0 / WINDOW_S[scale]
            facts |= {"acceleration": 1e4 * pace, "repair_median_s": 1800.0 / pace}
        yield Case(name, _make, facts, frozenset(kinds))


@resilience.read
def read(
    path: Path,
    *,
    requests: str = "",
    faults: str = "one",
    log: Literal["available", "down"] = "available",
    model: str = _70B,
    device: str = "h100-80",
    gpus: int = 8,
    like: str = "azure-conv",
    rate: float = 8.0,
    window: float = 600.0,
    limit: int = 0,
    mtbf: float = 50_000.0,
    acceleration: float = 1e4,
) -> Iterator[Case]:
    """A fault trace (`time_s,device,event`), an availability log (`start,end,gpu`), or a trace of requests that `armillary.llm` reads.

    With faults in the file, `requests` names a trace of requests; without one, requests like a public trace come `rate` a second. With
    requests in the file, `faults` names a fault file, or is one, two, three (losses at quarters of the window), none or random (exponential
    with `mtbf` GPU hours over `acceleration`). An availability log's spans are when a GPU was there, or with --log down when it was not.
    `gpus` GPUs of kind `device` serve `model`.
    """
    from .faults import is_fault_file

    how = {
        "requests": requests, "faults": faults, "log": log, "model": model, "device": device, "gpus": gpus, "like": like, "rate": rate,
        "window": window, "limit": limit, "mtbf": mtbf, "acceleration": acceleration, "path": str(path), "has_faults": is_fault_file(path),
    }  # fmt: skip
    if limit < 0:
        raise InputError(f"limit: found {limit}; expected 0 (all) or more requests")
    work = _from_file(how, 0)  # Read now: what is wrong with a file is said before anything runs.
    drawn = not how["has_faults"] and faults == "random"
    kinds = {"file", *(("loss",) if work.faults.down_spans(window) and not drawn else ())}
    yield Case(path.name, _load, how, frozenset(kinds), source=path)


@resilience.run
def run(technique: Any, case: Case) -> Outcome:
    """The window served by one technique."""
    import numpy as np

    from .service import Served

    served: Served = technique.service(case.workload).run()
    values = served.metrics()
    if "loss" not in case.kinds:
        for name in ("throughput_degraded", "throughput_after", "recovery_s", "recovery_p99_s"):
            values.pop(name, None)
    story = "".join(f"{time_s:.3f}\t{words}\n" for time_s, words in served.story)
    left = [Artifact("story.tsv", "text/tab-separated-values", story.encode())]
    latency = served.result.e2e
    left.append(Artifact.quantiles("latency", latency[np.isfinite(latency)], "s"))
    left.append(Artifact("interruptions.csv", "text/csv", served.table().write_csv().encode()))
    timeline = json.dumps(served.result.perfetto(TIMELINE_SLICES), separators=(",", ":")).encode()
    left.append(Artifact("timeline.json", "application/json", timeline))
    return Outcome(values, left)


@resilience.answer
def answer(result: Result) -> str:
    """What is kept and how long the hole is, against the standard."""
    said = []
    for case in result.cases:
        kept = {t: v[case] for t in result.techniques if t != "no-fault" and case in (v := result.medians(t, "throughput_degraded"))}
        if not kept:
            whole = {t: v[case] for t in result.techniques if t != "no-fault" and case in (v := result.medians(t, "token_throughput"))}
            if whole:
                best = max(whole, key=lambda t: whole[t])
                said.append(f"{case}: {best} serves most, {whole[best]:,.0f} tok/s.")
            continue
        # Of those within 2 % of the most, the one whose interrupted requests wait least.
        near = [t for t in kept if kept[t] >= 0.98 * max(kept.values())]
        best = min(near, key=lambda t: result.medians(t, "recovery_s")[case])
        hole = result.medians(best, "recovery_s")[case]
        line = f"{case}: {best} serves {kept[best]:,.0f} tok/s while a GPU is gone, and interrupted requests go on after {hole:.2g} s"
        if best != "restore-recompute" and "restore-recompute" in kept:
            line += f" (a restart: {kept['restore-recompute']:,.0f} tok/s, {result.medians('restore-recompute', 'recovery_s')[case]:.2g} s)"
        said.append(f"{line}.")
    return " ".join(said) or "Nothing was served."


@resilience.plots
def plots(result: Result) -> Sequence[Any]:
    """Throughput while a GPU is gone, and how long interrupted requests wait."""
    from armillary.figures import panels

    drawn = []
    for metric, title, unit, log_y in (
        ("throughput_degraded", "Tokens a second while a GPU is gone", "tok/s", False),
        ("recovery_s", "From the loss to the first new token, median", "s", True),
    ):
        lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
        for technique in result.techniques:
            for case, value in result.medians(technique, metric).items():
                if value > 0:
                    lines.setdefault(case, {}).setdefault(technique, []).append((technique, value))
        if lines:
            drawn.append(panels(lines, title, "", unit, log_y=log_y))
    return drawn


def _make(case: Case, rng: np.random.Generator) -> Any:
    from .faults import random_faults, scripted
    from .workload import ResilienceWork, make_node, traffic

    p = case.parameters
    window = p["window_s"]
    node = make_node(p["model"])
    if p["losses"] is None:
        faults = random_faults(window, rng, acceleration=p["acceleration"], repair_median_s=p["repair_median_s"])
    else:
        faults = scripted(p["losses"], window, repair_s=None if p["repair"] is None else p["repair"] * window)
    return ResilienceWork(node, traffic(p["like"], p["rate"], window, case.seed32("requests")), faults, window)


def _load(case: Case, rng: np.random.Generator) -> Any:
    return _from_file(dict(case.parameters), case.seed32("requests"))


def _from_file(how: dict[str, Any], seed: int) -> Any:
    import numpy as np

    from armillary.errors import unknown
    from armillary.llm import Requests

    from .faults import FaultTrace, random_faults, read_faults, scripted
    from .workload import ResilienceWork, make_node, traffic

    window, gpus = how["window"], how["gpus"]
    if not 1 <= window <= 1e6:
        raise InputError(f"window: found {window}; expected 1 to 1e6 seconds")
    node = make_node(how["model"], gpus, how["device"])
    path = Path(how["path"])
    trace = path if not how["has_faults"] else Path(how["requests"]) if how["requests"] else None
    if trace is None:
        requests = traffic(how["like"], how["rate"], window, seed)
    else:
        if not trace.is_file():
            raise InputError("no such file", where=str(trace))
        requests = Requests.read(str(trace), limit=how["limit"] or None)
        requests = requests.take(requests.arrival_s < window)
    named = ("none", "one", "two", "three")
    if how["has_faults"]:
        faults = read_faults(path, gpus, log=how["log"], until_s=window)
    elif how["faults"] in named:
        faults = scripted(named.index(how["faults"]), window, gpus)
    elif how["faults"] == "random":
        rng = np.random.default_rng(seed)
        faults = random_faults(window, rng, gpus=gpus, mtbf_gpu_h=how["mtbf"], acceleration=how["acceleration"])
    elif Path(how["faults"]).is_file():
        faults = read_faults(how["faults"], gpus, log=how["log"], until_s=window)
    else:
        raise unknown("faults", how["faults"], (*named, "random"), where="--faults")
    return ResilienceWork(node, requests, FaultTrace(faults.faults), window)
