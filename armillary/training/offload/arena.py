"""Which tensors should live in GPU, host and NVMe memory, and when should each move, if a model does not fit the GPU?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .runtime.measured import RealWork
    from .workload import OffloadWork

_SIMULATED = frozenset({"simulated"})

offload = Arena(
    "training/offload",
    question="The model does not fit the GPU: which tensors should live in GPU, host and NVMe memory, and when should each move, so that "
    "the GPU waits least?",
    metrics=[
        Metric("iteration_s", unit="s", kind="by case", doc="forward, backward and update, per iteration after the warm-up"),
        Metric("stall_s", unit="s", kind="by case", scale="difference", doc="seconds per iteration in which computation waits for tensors"),
        Metric("gpu_hit_rate", better="higher", on=_SIMULATED,
               doc="share of accesses that do not wait, among tensors of 100,000 elements and more"),
        Metric("gpu_hit_rate_bytes", better="higher", on=_SIMULATED, doc="the same, weighed by bytes"),
        Metric("gpu_utilisation_mem", better="higher", on=_SIMULATED, doc="bytes of the GPU in use, averaged over time, over its memory"),
        Metric("cpu_utilisation_mem", better="higher", on=_SIMULATED,
               doc="bytes of the host in use, averaged over an iteration, over its memory"),
        Metric("h2d_bytes", unit="B", scale="difference", on=_SIMULATED, doc="bytes per iteration from the host to the GPU"),
        Metric("d2h_bytes", unit="B", scale="difference", on=_SIMULATED, doc="bytes per iteration from the GPU to the host"),
        Metric("nvme_read_bytes", unit="B", scale="difference", on=_SIMULATED, doc="bytes per iteration from the drive"),
        Metric("nvme_write_bytes", unit="B", scale="difference", on=_SIMULATED, doc="bytes per iteration to the drive"),
        Metric("cost_usd", unit="USD", kind="modelled", on=_SIMULATED | {"priced"}, doc="list price of the GPU for 1,000 iterations"),
        Metric("promise_error", scale="difference", on=_SIMULATED,
               doc="how far the busiest lanes of the schedule, without waiting, are from the simulated iteration"),
    ],
    techniques={
        "zero-infinity": ".zero_infinity:ZeroInfinity",
        "zero-offload": ".zero_offload:ZeroOffload",
        "layer-to-layer": ".layer_to_layer:LayerToLayer",
        "lru": ".lru:Lru",
        "10cache": ".tencache:TenCache",
        "belady": ".belady:Belady",
    },
    papers={"10cache": "10cache"},
    baseline="zero-infinity",
    tradeoff=("iteration_s", "cpu_utilisation_mem"),
    repeats=1,
    telling=("opt-6.7b", "falcon-7b", "opt-13b"),
    constants=[
        Constant("seconds of modules", "armillary.llm", "s", "roofline; V100 and A100-40 are not calibrated"),
        Constant("Adam on the host", 1.5e9, "parameters/s", "all cores together; the arena's workstation (ours)"),
        Constant("cudaMalloc", 0.3e-3, "s", "per buffer that is not reused; the arena's workstation (ours)"),
        Constant("pinning", 0.25e-3, "s/MiB", "host memory that is not reused; the arena's workstation (ours)"),
        Constant("launch of a copy", 10e-6, "s", "besides the latency of the link (ours)"),
        Constant("request to the drive", 100e-6, "s", "a usual NVMe drive (ours)"),
        Constant("workspace", 2.0**30, "B", "of the GPU, for kernels and libraries (ours)"),
        Constant("price", "3.06, 4.10, 12.29", "USD/h", "AWS on demand, 2023: p3.2xlarge; an eighth of p4d.24xlarge and of p5.48xlarge"),
    ],
)  # fmt: skip

V100, A100, H100 = "one-gpu-workstation", "one-gpu-workstation-a100", "one-gpu-workstation-h100"
_FIT = "parameters-fit"
#: Each case has its model, machine, sequences of 128 tokens, GiB of host memory (0: the machine's), and kinds: `host` and `nvme` say where
#: Adam's states fit, and `parameters-fit` that the GPU holds all 16-bit parameters beside the activations.
CASES: dict[str, tuple[str, str, int, int, frozenset[str]]] = {
    "opt-6.7b": ("opt-6.7b", V100, 16, 0, frozenset({"host", _FIT})),
    "bloom-7b1": ("bloom-7b1", V100, 16, 0, frozenset({"host", _FIT})),
    "falcon-7b": ("falcon-7b", V100, 16, 0, frozenset({"host", _FIT})),
    "llama-2-7b": ("llama-2-7b", V100, 16, 0, frozenset({"host", _FIT})),
    "opt-6.7b-batch-32": ("opt-6.7b", V100, 32, 0, frozenset({"host"})),
    "opt-13b-a100": ("opt-13b", A100, 16, 0, frozenset({"host"})),
    "llama-2-13b-h100": ("llama-2-13b", H100, 16, 0, frozenset({"host", _FIT})),
    "opt-1.3b": ("opt-1.3b", V100, 16, 0, frozenset({"host", _FIT})),
    "opt-13b": ("opt-13b", V100, 16, 0, frozenset({"nvme"})),
    "falcon3-10b": ("falcon3-10b", V100, 16, 0, frozenset({"nvme"})),
    "llama-2-13b": ("llama-2-13b", V100, 16, 0, frozenset({"nvme"})),
    "opt-6.7b-24gib": ("opt-6.7b", V100, 16, 24, frozenset({"nvme"})),
    "opt-6.7b-misfit": ("opt-6.7b", V100, 32, 0, frozenset({"misfit"})),
    "opt-13b-misfit": ("opt-13b", V100, 16, 0, frozenset({"misfit"})),
    "opt-6.7b-shuffled": ("opt-6.7b", V100, 16, 0, frozenset({"shuffled", _FIT})),
    "opt-13b-shuffled": ("opt-13b", V100, 16, 0, frozenset({"shuffled"})),
}
TINY = ("opt-6.7b", "falcon-7b", "opt-13b", "opt-6.7b-24gib", "opt-6.7b-misfit", "opt-6.7b-shuffled")
ITERATIONS = {"tiny": 3, "small": 4, "large": 12}
#: Real cases: the share of the parameters in RAM; by scale the sizes of the transformer, and timed iterations.
REAL = {"real-half": 0.5, "real-quarter": 0.25}
REAL_SIZE = {"tiny": (64, 4, 128, 128, 2, 16, 2), "small": (384, 6, 1536, 1024, 2, 64, 4), "large": (768, 8, 3072, 4096, 4, 128, 4)}


@offload.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Models on three workstations, layers that take other times than planned, layers in another order every time, and real training.

    On a cluster of one's own, all models run on its first GPU.
    """
    priced = _priced(cluster)
    for name, (model, machine, sequences, host, kinds) in CASES.items():
        if scale == "tiny" and name not in TINY:
            continue
        facts = {"model": model, "sequences": sequences, "tokens": 128, "host_gib": host, "iterations": ITERATIONS[scale]}
        if cluster is None:
            facts["machine"] = machine
        yield Case(name, _simulated, facts, kinds | _SIMULATED | priced, cluster=cluster)
    names = ("hidden", "layers", "ffn", "vocab", "batch", "tokens", "iterations")
    for name, share in REAL.items():
        if scale != "tiny" or name == "real-half":
            yield Case(name, _real, {**dict(zip(names, REAL_SIZE[scale], strict=True)), "share": share}, frozenset({"measured"}))


def _priced(cluster: Cluster | None) -> frozenset[str]:
    """The kind of cases whose GPU has a list price; those of the built-in machines have one."""
    if cluster is None:
        return frozenset({"priced"})
    from .simulation.machine import Machine

    return frozenset({"priced"} if Machine.of(cluster).price_per_hour else ())


@dataclass(frozen=True)
class Reading:
    """How a model's config.json or a trace of tensor accesses is read, and the machine on which it is simulated."""

    machine: str = parameter(V100, "the machine, of which the first GPU is used: a preset or a file", file=True)
    sequences: int = parameter(16, "sequences per iteration", range=(1, 1 << 20))
    tokens: int = parameter(128, "tokens per sequence", range=(1, 1 << 20))
    task: str = parameter("classify", "what the model is trained for", choices=("classify", "generate"))
    recompute: str = parameter("none", "what backward computes again", choices=("none", "selective", "mlp", "full"))
    gpu_gb: float = parameter(0.0, "GB of the GPU's memory; 0 takes the machine's", range=(0, 1e6))
    host_gb: float = parameter(0.0, "GB of the host's memory; 0 takes the machine's", range=(0, 1e6))
    iterations: int = parameter(4, "iterations to simulate, the warm-up included", range=(2, 10_000))


@offload.read(Reading)
def read(path: Path, how: Reading) -> OffloadWork:
    """Reads a Hugging Face config.json, or a trace of one iteration's tensor accesses (CSV), ours or the published artifact's."""
    from armillary.llm import Model

    from .readers.access_trace import read_trace
    from .simulation.machine import Machine
    from .workload import model_work

    machine = Machine.of(how.machine).with_sizes(1e9 * how.gpu_gb, 1e9 * how.host_gb)
    if path.suffix == ".json":
        model = Model.from_config(path, name=path.stem)
        return model_work(
            model, machine, sequences=how.sequences, tokens=how.tokens, iterations=how.iterations, recompute=how.recompute, task=how.task
        )
    return read_trace(path, machine, tokens=how.sequences * how.tokens, iterations=how.iterations)


@offload.own_cases
def own_cases(work: OffloadWork, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {"machine": work.machine.name, "tensors": len(work.size), "parameters": work.parameters, "notes": list(work.notes)}
    priced = {"priced"} if work.machine.price_per_hour else set()
    yield Case(name, parameters=facts, kinds=_SIMULATED | {"file"} | priced)


@offload.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a trace of eight modules of two tensors each, with the seconds of their update."""
    path = folder / "accesses.csv"
    rows, at = ["tensor_id,bytes,dtype,layer_id,layer_name,phase,start_ms,end_ms"], 0.0
    for phase, order, takes in (("fwd", range(8), 2.0), ("bwd", range(7, -1, -1), 4.0), ("opt", range(8), 1.0)):
        for layer in order:
            for part, size in (("weight", 64 << 20), ("bias", 8192)):
                rows.append(f"layer{layer}.{part},{size},fp16,{layer},layer{layer},{phase},{at:g},{at + takes:g}")
            at += takes
    path.write_text("\n".join(rows) + "\n")
    return path, {"gpu_gb": "2.0", "host_gb": "8"}


@offload.run
def run(technique: Any, case: Case) -> Outcome:
    """Simulates the technique's schedule, or really trains with it."""
    if "measured" in case.kinds:
        from .runtime.measured import measure

        return Outcome(measure(technique, case.workload))
    from .planning.promise import promise
    from .simulation.outcome import metrics, timeline
    from .simulation.timing import simulate

    work: OffloadWork = case.workload
    schedule = technique.schedule(work)
    if schedule.host_most > work.machine.host_bytes:
        raise AssertionError(f"the schedule needs {schedule.host_most:.0f} bytes of the host, which has {work.machine.host_bytes:.0f}")
    timed = simulate(work, schedule)
    return Outcome(metrics(work, schedule, timed, promise(work, schedule)), [Artifact.timeline(timeline(work, schedule, timed))])


@offload.answer
def answer(result: Result) -> str:
    """Names the technique with the shortest iterations, by how much, and how long the GPU still waits."""
    if "iteration_s" not in result.metrics:
        return "Ask for the metric iteration_s to get an answer."
    oracles = {name for name in result.techniques if name in offload.techniques and offload.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "iteration_s", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    real = {case for case in ranked if "measured" in result.cases[case]["kinds"]}
    groups = [{case: found for case, found in ranked.items() if (case in real) == measured} for measured in (False, True)]
    return " ".join(_best_of(result, group) for group in groups if group)


def _best_of(result: Result, ranked: dict[str, dict[str, float]]) -> str:
    """One sentence on cases of one kind; a technique within half a percent of the best shares the place."""
    near = {case: [t for t, s in found.items() if s <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    with_it = sorted({t for case in won for t in near[case] if t != best})
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    said = f"{best} has the shortest iterations on {where}"
    gains = [ratio for case in won if best != "zero-infinity" and (ratio := result.ratio(case, "iteration_s", best, "zero-infinity"))]
    if gains:
        low, high = f"{min(gains):.2f}", f"{max(gains):.2f}"
        said += f", {low if low == high else f'{low} to {high}'} times as fast as zero-infinity"
    if "stall_s" in result.metrics:
        waits = [wait for case in won if (wait := result.on(case, "stall_s").get(best)) is not None]
        if waits:
            said += f", and the GPU waits {max(waits):.2g} s at most per iteration"
    if with_it:
        some = " on some of them" if len(ranked) > 1 else ""
        said += f" ({listed(with_it)} {'is' if len(with_it) == 1 else 'are'} within half a percent{some})"
    return said + "."


@offload.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds per iteration and seconds of waiting, by case."""
    drawn = []
    for metric, title in (("iteration_s", "Seconds per iteration"), ("stall_s", "Seconds per iteration in which the GPU waits")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, y="s", log_y=metric == "iteration_s")
    return drawn


def _simulated(case: Case, rng: np.random.Generator) -> OffloadWork:
    from armillary.llm import Model

    from .simulation.machine import GIB, Machine
    from .workload import model_work

    p = case.parameters
    machine = Machine.of(case.cluster if case.cluster is not None else p["machine"]).with_sizes(host_bytes=p["host_gib"] * GIB)
    work = model_work(Model.preset(p["model"]), machine, sequences=p["sequences"], tokens=p["tokens"], iterations=p["iterations"])
    if "misfit" in case.kinds:
        return work.misfit(rng)
    return work.shuffled(rng) if "shuffled" in case.kinds else work


def _real(case: Case, rng: np.random.Generator) -> RealWork:
    from .runtime.measured import RealWork

    return RealWork(**case.parameters, seed=int(rng.integers(1 << 31)))
