"""If one GPU of the node dies while serving, how much throughput is kept, how long is the interruption, and what is lost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.errors import unknown

if TYPE_CHECKING:
    import numpy as np

    from armillary.llm import Requests

    from .planning.node import Node
    from .simulation.faults import FaultTrace
    from .workload import ResilienceWork

_LOSS = frozenset({"loss"})

resilience = Arena(
    "serving/resilience",
    question="One GPU of my 8-GPU node dies while serving: how much throughput do I keep, how long is the interruption, and what is lost?",
    metrics=[
        Metric("token_throughput", unit="tok/s", better="higher", doc="prompt and output tokens over the window"),
        Metric("throughput_degraded", unit="tok/s", better="higher", on=_LOSS, doc="while a GPU is gone, interruption included"),
        Metric("throughput_after", unit="tok/s", better="higher", on=_LOSS, doc="in the second half of that time"),
        Metric("recovery_s", unit="s", on=_LOSS, doc="median time from the loss to the first new token"),
        Metric("recovery_p99_s", unit="s", on=_LOSS, doc="99th percentile of the same time"),
        Metric("kv_capacity", unit="tokens", better="higher", kind="modelled", doc="cached tokens that the smallest group holds"),
        Metric("imbalance", kind="modelled", doc="maximum over mean of memory and compute over GPUs, in the worst layout"),
        Metric("rank_imbalance", doc="attention of the busiest GPU over the mean, as requests were placed"),
        Metric("lost_tokens", unit="tokens", scale="difference", doc="tokens that are computed again after losses"),
        Metric("host_bw", unit="GB/s", better=None, doc="rate of the copies to the mirror in host memory"),
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
    repeats=1,
    telling=["chat-1-loss", "chat-half-load", "chat-repair", "long-context", "random-faults"],
    constants=[
        Constant("detection", 0.1, "s", "ours, after PyTorch's watchdog, which looks every 100 ms; the same for all techniques"),
        Constant("regroup", 0.05, "s", "ours: failsafe, its parts and spare create the survivors' communicators in advance"),
        Constant("restart", 20.0, "s", "ours: from an engine's start to the loading of weights; restarting techniques can set it"),
        Constant("PCIe", "55", "GB/s", "a GPU's link to the host, each way: 63 GB/s of PCIe 5.0 x16 less the protocol's share"),
        Constant("NVLink", "450", "GB/s", "a GPU's link to all others, each way (NVIDIA DGX H100 data sheet: 900 both ways)"),
        Constant("engine", "8192 tokens, 1024 sequences", "", "as vLLM starts its server on an H100"),
        Constant("MTBF", 50_000.0, "GPU h", "419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 herd of models, 2024)"),
        Constant("repair", "1800, sigma 0.8", "s", "lognormal; ours"),
    ],
)

#: Iterations that the timeline of a unit keeps.
TIMELINE_SLICES = 20_000
WINDOW_S = {"tiny": 40.0, "small": 600.0, "large": 3600.0}
_70B = "llama-3.1-70b"
#: Model, traffic, requests per second, losses (None: drawn), repair as a share of the window, kinds. "busy" is more than eight GPUs can do
#: (by about a quarter), so throughput is capacity; the others are about half of it.
CASES: dict[str, tuple[str, str, float, int | None, float | None, tuple[str, ...]]] = {
    "chat-1-loss": (_70B, "azure-conv", 17.0, 1, None, ("busy", "one-loss", "loss")),
    "chat-2-losses": (_70B, "azure-conv", 17.0, 2, None, ("busy", "two-losses", "loss")),
    "chat-3-losses": (_70B, "azure-conv", 17.0, 3, None, ("busy", "three-losses", "loss")),
    "chat-half-load": (_70B, "azure-conv", 6.5, 1, None, ("one-loss", "loss")),
    "chat-repair": (_70B, "azure-conv", 6.5, 1, 0.25, ("repair", "loss")),
    "long-context": (_70B, "long-context", 1.5, 1, None, ("busy", "one-loss", "loss")),
    "qwen-1-loss": ("qwen2.5-72b", "azure-conv", 17.0, 1, None, ("busy", "one-loss", "loss")),
    "code-1-loss": (_70B, "azure-code", 12.0, 1, None, ("busy", "one-loss", "loss")),
    "sharegpt-1-loss": (_70B, "sharegpt", 55.0, 1, None, ("busy", "one-loss", "loss")),
    "long-context-2-losses": (_70B, "long-context", 1.5, 2, None, ("busy", "two-losses", "loss")),
    "long-context-3-losses": (_70B, "long-context", 1.5, 3, None, ("busy", "three-losses", "loss")),
    "qwen-2-losses": ("qwen2.5-72b", "azure-conv", 17.0, 2, None, ("busy", "two-losses", "loss")),
    "qwen-3-losses": ("qwen2.5-72b", "azure-conv", 17.0, 3, None, ("busy", "three-losses", "loss")),
    "code-2-losses": (_70B, "azure-code", 12.0, 2, None, ("busy", "two-losses", "loss")),
    "code-3-losses": (_70B, "azure-code", 12.0, 3, None, ("busy", "three-losses", "loss")),
    "mixtral-1-loss": ("mixtral-8x22b", "azure-conv", 30.0, 1, None, ("busy", "loss", "too-large-for-4")),
    "random-faults": (_70B, "azure-conv", 6.5, None, None, ("random",)),
}
#: The cases of the tiny scale.
TINY = ("chat-half-load", "chat-2-losses", "chat-repair", "long-context", "mixtral-1-loss", "random-faults")
#: Losses that are known by a word, each at a quarter of the window.
SCRIPTED = ("none", "one", "two", "three")


@resilience.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields four kinds of traffic on Llama-3.1-70B and chat on two other models, with one to three losses, a repair or random faults."""
    for name, (model, like, rate, losses, repair, kinds) in CASES.items():
        if scale == "tiny" and name not in TINY:
            continue
        facts = {"model": model, "like": like, "rate": rate, "losses": losses, "repair": repair, "window_s": WINDOW_S[scale]}
        if losses is None:
            # Any window sees the faults of four accelerated hours (6.4 on average), so faults are more frequent and repairs shorter.
            pace = 4 * 3600.0 / WINDOW_S[scale]
            facts |= {"acceleration": 1e4 * pace, "repair_median_s": 1800.0 / pace}
        yield Case(name, _make, facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How a file of faults or requests is read, what it lacks, and which node serves."""

    requests: str = parameter("", "a trace of requests for a file of faults; if empty, requests are drawn", file=True)
    faults: str = parameter("one", "the faults for a file of requests: none, one, two, three, random, or a fault file", file=True)
    log: Literal["available", "down"] = parameter("available", "what the spans of an availability log say about a GPU")
    model: str = parameter(_70B, "a model that comes with Armillary, a config.json, or a folder that holds one", file=True)
    device: str = parameter("h100-80", "a device of the catalogue", file=True)
    gpus: int = parameter(8, "the number of GPUs of the node", range=(1, 1024))
    like: Literal["azure-conv", "azure-code", "sharegpt", "long-context"] = parameter("azure-conv", "the trace whose lengths are drawn")
    rate: float = parameter(8.0, "the requests per second that are drawn", range=(1e-6, 1e4))
    window: float = parameter(600.0, "the seconds that are simulated", range=(1, 1e6))
    limit: int = parameter(0, "the number of requests to read; 0 reads all of them", range=(0, 2**40))
    mtbf: float = parameter(50_000.0, "the mean GPU hours between random failures", range=(1e-6, 1e12))
    acceleration: float = parameter(1e4, "how many times more often random failures happen", range=(1e-6, 1e12))

    def validate(self) -> None:
        """Raises InputError unless the faults are a known word or a file."""
        if self.faults not in (*SCRIPTED, "random") and not Path(self.faults).is_file():
            raise unknown("faults", self.faults, (*SCRIPTED, "random"), where="--faults")


@dataclass(frozen=True)
class Loaded:
    """The content of the files: a node, and its requests and faults unless they are drawn."""

    how: Reading
    node: Node
    requests: Requests | None
    faults: FaultTrace | None

    def work(self, seed: int) -> ResilienceWork:
        """Returns the work; requests or faults that are not in a file are drawn from `seed`."""
        import numpy as np

        from .simulation.faults import FaultTrace, random_faults
        from .workload import ResilienceWork, traffic

        how, requests, faults = self.how, self.requests, self.faults
        if requests is None:
            requests = traffic(how.like, how.rate, how.window, seed)
        if faults is None:
            rng = np.random.default_rng(seed)
            faults = random_faults(how.window, rng, gpus=how.gpus, mtbf_gpu_h=how.mtbf, acceleration=how.acceleration)
        return ResilienceWork(self.node, requests, FaultTrace(faults.faults), how.window)


@resilience.read(Reading)
def read(path: Path, how: Reading) -> Loaded:
    """Reads a fault trace (`time_s,device,event`), an availability log (`start,end,gpu`), or requests that `armillary.llm` reads.

    A file of faults takes its requests from `--requests` or draws them; a file of requests takes its faults from `--faults`.
    """
    from armillary.llm import Requests

    from .simulation.faults import is_fault_file, read_faults, scripted
    from .workload import make_node

    node = make_node(how.model, how.gpus, how.device)
    has_faults = is_fault_file(path)
    trace = how.requests if has_faults else str(path)
    requests = None
    if trace:
        requests = Requests.read(trace, limit=how.limit or None)
        requests = requests.take(requests.arrival_s < how.window)
    faults: FaultTrace | None = None
    if has_faults:
        faults = read_faults(path, how.gpus, log=how.log, until_s=how.window)
    elif how.faults in SCRIPTED:
        faults = scripted(SCRIPTED.index(how.faults), how.window, how.gpus)
    elif how.faults != "random":
        faults = read_faults(how.faults, how.gpus, log=how.log, until_s=how.window)
    loaded = Loaded(how, node, requests, faults)
    loaded.work(0)
    return loaded


@resilience.own_cases
def own_cases(loaded: Loaded, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, which is a loss if a GPU of the file is gone at some time in the window."""
    lost = loaded.faults is not None and loaded.faults.down_spans(how.window)
    facts = {"model": loaded.node.model.name, "gpus": how.gpus, "window_s": how.window}
    yield Case(name, _own, facts, frozenset({"file", *(("loss",) if lost else ())}))


@resilience.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Returns a fault trace in which one GPU is lost and comes back, and requests in the form of the Azure LLM inference traces."""
    file, requests = folder / "faults.csv", folder / "requests.csv"
    file.write_text("time_s,device,event\n5,2,down\n12,2,up\n")
    rows = (f"2023-11-16 18:15:{46 + i // 10}.{i % 10}0,{300 + 20 * i},{10 + i}" for i in range(40))
    requests.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return file, {"requests": str(requests), "window": "20"}


@resilience.run
def run(technique: Any, case: Case) -> Outcome:
    """Serves the window with one technique."""
    import numpy as np

    from .simulation.service import Served

    served: Served = technique.service(case.workload).run()
    values = served.metrics()
    if "loss" not in case.kinds:
        for name in ("throughput_degraded", "throughput_after", "recovery_s", "recovery_p99_s"):
            values.pop(name, None)
    story = "".join(f"{time_s:.3f}\t{words}\n" for time_s, words in served.story)
    left = [Artifact("story.tsv", "text/tab-separated-values", story.encode())]
    latency = served.result.e2e
    left.append(Artifact.quantiles("latency", latency[np.isfinite(latency)], "s"))
    left.append(Artifact.table("interruptions", served.table()))
    left.append(Artifact.timeline(served.result.perfetto(TIMELINE_SLICES)))
    return Outcome(values, left)


@resilience.answer
def answer(result: Result) -> str:
    """Says what is kept and how long requests wait, compared with a restart, on the first case that has a loss."""
    aside = ("no-fault",)
    case = next((c for c in result.cases if result.on(c, "throughput_degraded", without=aside)), None)
    if case is None:
        first = result.first_places("token_throughput")
        return f"{next(iter(first))} serves the most tokens per second." if first else "Nothing was served."
    kept, hole = result.on(case, "throughput_degraded", without=aside), result.on(case, "recovery_s", without=aside)
    # Among the techniques within 2 % of the highest throughput, the one whose interrupted requests wait least is named.
    near = [t for t in kept if kept[t] >= 0.98 * max(kept.values())]
    best = min(near, key=lambda t: hole[t])
    said = f"On {case}, {best} serves {kept[best]:,.0f} tok/s while a GPU is gone, and interrupted requests go on after {hole[best]:.2g} s"
    standard = "restore-recompute"
    if best != standard and standard in kept:
        said += f"; after a restart these are {kept[standard]:,.0f} tok/s and {hole[standard]:.2g} s"
    return f"{said}."


@resilience.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the throughput while a GPU is gone, and how long interrupted requests wait."""
    from armillary.figures import panels

    drawn = []
    for metric, title, unit, log_y in (
        ("throughput_degraded", "Tokens per second while a GPU is gone", "tok/s", False),
        ("recovery_s", "From the loss to the first new token, median", "s", True),
    ):
        bars = {case: {t: [(t, v)] for t, v in result.on(case, metric).items() if v > 0} for case in result.cases}
        lines = {case: found for case, found in bars.items() if found}
        if lines:
            drawn.append(panels(lines, title, "", unit, log_y=log_y))
    return drawn


def _make(case: Case, rng: np.random.Generator) -> ResilienceWork:
    from .simulation.faults import random_faults, scripted
    from .workload import ResilienceWork, make_node, traffic

    p = case.parameters
    window = p["window_s"]
    node = make_node(p["model"])
    if p["losses"] is None:
        faults = random_faults(window, rng, acceleration=p["acceleration"], repair_median_s=p["repair_median_s"])
    else:
        faults = scripted(p["losses"], window, repair_s=None if p["repair"] is None else p["repair"] * window)
    return ResilienceWork(node, traffic(p["like"], p["rate"], window, case.seed32("requests")), faults, window)


def _own(case: Case, rng: np.random.Generator) -> ResilienceWork:
    return case.loaded.work(case.seed32("requests"))
