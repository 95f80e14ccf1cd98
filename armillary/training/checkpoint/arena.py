"""How often can an MoE training be checkpointed, and by which method, without slowing it, and what does a failure then cost?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.errors import InputError
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .runtime.measured import RealWork
    from .workload import CheckpointWork, Outages

_SIMULATED, _FAILURES, _MEASURED = frozenset({"simulated"}), frozenset({"failures"}), frozenset({"measured"})

checkpoint = Arena(
    "training/checkpoint",
    question="How often can I checkpoint this MoE training, and with which method, without slowing it, and what do I lose at a failure?",
    metrics=[
        Metric("iteration_s", unit="s", kind="by case", doc="an iteration with its checkpoint work, as the mean after the warm-up"),
        Metric("overhead_ratio", scale="difference", on=_SIMULATED, doc="how much longer that is than without checkpoints, as a share"),
        Metric("stall_s", unit="s", scale="difference", on=_SIMULATED, doc="seconds per iteration that checkpoints and profiles add"),
        Metric("checkpoint_interval_iters", on=_SIMULATED, doc="iterations between two complete checkpoints; all if there is none"),
        Metric("profile_activations", scale="difference", on=_SIMULATED, doc="iterations in which spans were timed, of all"),
        Metric("partition_error", on=_SIMULATED, doc="how far planned spans are from real ones, as a share; without a plan, the first"),
        Metric("promise_error", scale="difference", on=_SIMULATED, doc="how far the promised iteration is from the simulated one"),
        Metric("goodput", better="higher", on=_SIMULATED | _FAILURES, doc="share of the time that went into lasting training (ETTR)"),
        Metric("lost_iterations", scale="difference", on=_SIMULATED | _FAILURES, doc="iterations trained again per failure, as a mean"),
        Metric("recovery_s", unit="s", kind="by case", on=_FAILURES, doc="seconds from a failure until training goes on, as a mean"),
        Metric("state_equal", better="higher", kind="measured", steady=True, scale="difference", on=_MEASURED,
               doc="1 if losses and weights after a killed rank equal those of an undisturbed run, bit for bit"),
        Metric("real_lost_iterations", kind="measured", scale="difference", on=_MEASURED, doc="iterations trained again after the kill"),
    ],
    techniques={
        "none": ".none:NoCheckpoint",
        "torchsnapshot": ".torchsnapshot:TorchSnapshot",
        "dcp-async": ".dcp_async:DcpAsync",
        "checkfreq": ".checkfreq:CheckFreq",
        "gemini": ".gemini:Gemini",
        "moevement": ".moevement:Moevement",
        "opportunistic": ".opportunistic:Opportunistic",
        "moe-rckpt": ".moe_rckpt:MoeRckpt",
    },
    papers={"moe-rckpt": "moe-rckpt"},
    baseline="gemini",
    tradeoff=("iteration_s", "checkpoint_interval_iters"),
    repeats=1,
    telling=("gpt-moe-1.3b-skewed", "mixtral-8x7b-skewed", "mixtral-8x7b-iid"),
    constants=[
        Constant("seconds of layers", "armillary.llm", "s", "roofline, calibrated on the A100-80; backward takes twice as long as forward"),
        Constant("state", 14, "B/parameter", "16-bit weight, fp32 master weight and two moments, sharded over all GPUs"),
        Constant("pinned copies", 0.75, "of PCIe's rate", "24 of 32 GB/s, as the offload arena's workstation"),
        Constant("pageable copies", 0.45, "of pinned", "the offload arena's workstation"),
        Constant("large messages", 0.72, "of the port's rate", "armillary.llm's fabric"),
        Constant("chunk", 50e-6, "s", "per chunk besides its bytes: two launches, an event and a message (ours)"),
        Constant("storage", 3.5e9, "B/s", "per node, reading and writing (ours: 2 to 5 GB/s)"),
        Constant("jitter", 0.03, "", "lognormal, per span and iteration (ours)"),
        Constant("detection and restart", "15 + 120", "s", "until a spare node has joined (ours)"),
        Constant("persisted versions", "one after the other", "", "systems in memory also write versions to storage (ours)"),
    ],
)  # fmt: skip

#: Model: GPUs, ranks of an expert-parallel group, sequences per GPU and tokens per sequence.
MODELS = {
    "gpt-moe-125m": (16, 8, 4, 2048),
    "gpt-moe-350m": (16, 8, 4, 2048),
    "gpt-moe-1.3b": (16, 8, 4, 2048),
    "mixtral-8x7b": (32, 8, 1, 4096),
    "deepseek-moe-16b": (32, 32, 1, 4096),
}
#: The slower network: Gb/s per node, instead of 200 Gb/s per GPU.
SLOW_GBIT = 100.0
ITERATIONS = {"tiny": 60, "small": 200, "large": 1000}
HORIZON_S = {"tiny": 6 * 3600.0, "small": 24 * 3600.0, "large": 96 * 3600.0}
TINY = (
    "gpt-moe-350m-skewed", "gpt-moe-1.3b-skewed", "mixtral-8x7b-skewed", "mixtral-8x7b-balanced", "mixtral-8x7b-iid",
    "mixtral-8x7b-skewed-mtbf-1h",
)  # fmt: skip
#: Real training, by scale: hidden size, layers, expert width, experts, sequences, tokens, iterations.
REAL_SIZE = {"tiny": (32, 2, 64, 4, 2, 16, 10), "small": (64, 3, 256, 8, 2, 64, 24), "large": (128, 4, 512, 8, 4, 64, 60)}


@checkpoint.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Every iteration checkpointed, on two networks; failures; load without locality; experts inside nodes; and real training with a kill.

    On a cluster of one's own, all models run on its GPUs and its network.
    """
    for case in _every_case(scale, cluster):
        if scale != "tiny" or case.name in TINY:
            yield case


def _every_case(scale: str, cluster: Cluster | None) -> Iterator[Case]:
    def made(name: str, model: str, kinds: frozenset[str], load: str = "skewed", **more: Any) -> Case:
        gpus, ep, sequences, length = MODELS[model]
        facts = {
            "model": model, "gpus": gpus, "ep": ep, "sequences": sequences, "tokens": length, "load": load, "node_gbit": 0.0,
            "across": True, "every": 1, "mtbf_s": 0.0, "horizon_s": 0.0, "iterations": ITERATIONS[scale],
        }  # fmt: skip
        return Case(name, _simulated, facts | more, kinds | _SIMULATED, cluster=cluster)

    per, slow = frozenset({"per-iteration"}), {"node_gbit": SLOW_GBIT}
    for model in ("gpt-moe-350m", "gpt-moe-1.3b", "mixtral-8x7b", "deepseek-moe-16b"):
        for load in ("skewed", "balanced"):
            yield made(f"{model}-{load}", model, per | {"fast-network"}, load)
            if cluster is None:
                yield made(f"{model}-{load}-100g", model, per | {"slow-network"}, load, **slow)
    for model in ("gpt-moe-1.3b", "mixtral-8x7b"):
        for name, mtbf in (("10min", 600.0), ("1h", 3600.0)):
            yield made(f"{model}-skewed-mtbf-{name}", model, _FAILURES, mtbf_s=mtbf, horizon_s=HORIZON_S[scale], every=0)
    for model in ("gpt-moe-125m", "gpt-moe-1.3b", "mixtral-8x7b", "deepseek-moe-16b"):
        yield made(f"{model}-iid", model, frozenset({"misfit"}), "iid")
    for model in ("gpt-moe-1.3b", "mixtral-8x7b"):
        yield made(f"{model}-in-node", model, frozenset({"in-node"}), across=False)
    names = ("hidden", "layers", "ffn", "experts", "sequences", "tokens", "iterations")
    yield Case("real-kill", _real, {**dict(zip(names, REAL_SIZE[scale], strict=True)), "ranks": 4}, _MEASURED | _FAILURES)


@dataclass(frozen=True)
class Reading:
    """How expert load or a model's config.json is read, and the machine on which the training is simulated."""

    model: str = parameter("mixtral-8x7b", "the model of the load: a preset, gpt-moe-125m, -350m or -1.3b, or a config.json", file=True)
    cluster: str = parameter("dgx-a100", "the machine: a preset or a cluster file", file=True)
    gpus: int = parameter(32, "GPUs, in whole nodes", range=(1, 1 << 16))
    ep: int = parameter(8, "GPUs over which the experts are spread", range=(1, 1 << 16))
    across: bool = parameter(True, "whether the GPUs of an expert-parallel group are on several nodes")
    node_gbit: float = parameter(0.0, "another network, in Gb/s per node; 0 takes the cluster's", range=(0, 1e6))
    storage_gb: float = parameter(3.5, "GB/s per node that the shared storage takes", range=(1e-3, 1e4))
    tokens: int = parameter(2048, "tokens per sequence", range=(1, 1 << 20))
    sequences: int = parameter(1, "sequences per GPU and iteration, for a config.json; a load file tells it", range=(1, 1 << 16))
    load: str = parameter("skewed", "the load drawn for a config.json", choices=("skewed", "balanced", "iid"))
    iterations: int = parameter(200, "iterations drawn for a config.json", range=(21, 100_000))
    every: int = parameter(1, "1: a checkpoint of every iteration; 0: each technique's own interval", range=(0, 1))
    mtbf_s: float = parameter(0.0, "seconds between two failures of the whole machine; 0: none", range=(0, 1e9))
    failures: str = parameter("", "a failure trace with time_s and rank", file=True)
    horizon_h: float = parameter(24.0, "hours of training through failures", range=(0.01, 1e5))


@checkpoint.read(Reading)
def read(path: Path, how: Reading) -> CheckpointWork:
    """Reads expert load as a long or a wide table (CSV, TSV, JSON lines, Parquet), or a config.json, for which load is drawn."""
    import numpy as np

    from armillary.streams import stream

    from .readers.expert_load import read_load
    from .simulation.machine import Machine
    from .workload import MOST_ROWS, expert_load, moe_model, moe_work

    machine = Machine.of(how.cluster, how.gpus, node_gbit=how.node_gbit, storage_gb=how.storage_gb)
    rng = stream(0, "checkpoint", "file")
    sequences, length = how.sequences, how.tokens
    if path.suffix == ".json":
        model = moe_model(str(path))
        if model.moe is None:
            raise InputError(f"{model.name} has no experts; expected a mixture of experts", where=str(path))
        sparse = sum(count for layer, count in model.kinds if layer.mlp == "moe")
        if how.iterations * sparse * model.moe.experts > MOST_ROWS:
            raise InputError(f"--iterations: found {how.iterations} for {sparse} layers of {model.moe.experts} experts; expected fewer")
        load = expert_load(rng, how.iterations, sparse, model.moe.experts, sequences * length * how.ep * model.moe.top_k, how=how.load)
    else:
        load = read_load(path)
        model = moe_model(how.model)
        if model.moe is None:
            raise InputError(f"--model: {model.name} has no experts; expected a mixture of experts")
        mine, rest = divmod(int(load[0, 0].sum()), how.ep * model.moe.top_k)
        if rest or mine == 0:
            total = int(load[0, 0].sum())
            each = f"ep {how.ep} × {model.moe.top_k} experts per token"
            raise InputError(f"found {total} tokens per layer; expected a multiple of {each}", where=str(path))
        length = how.tokens if mine % how.tokens == 0 else mine
        sequences = mine // length
    outages = _outages(how, machine)
    name = path.name
    return moe_work(
        model, machine, np.asarray(load), ep=how.ep, sequences=sequences, length=length, rng=rng, across=how.across, every=how.every,
        outages=outages, name=name,
    )  # fmt: skip


def _outages(how: Reading, machine: Any) -> Outages | None:
    from armillary.streams import stream

    from .readers.failure_trace import read_outages

    if how.failures:
        return read_outages(how.failures, machine.gpus, machine.fabric.node, 3600 * how.horizon_h)
    return drawn_outages(stream(0, "checkpoint", "failures"), machine.nodes, how.mtbf_s, 3600 * how.horizon_h) if how.mtbf_s else None


def drawn_outages(rng: np.random.Generator, nodes: int, mtbf_s: float, horizon_s: float) -> Outages:
    """Failures of nodes, each on its own, so that the machine fails every `mtbf_s` seconds on average."""
    from armillary.workloads import failures

    from .workload import Outages

    # A node is back when training is, which the simulation decides; a second of repair keeps its failures apart.
    return Outages(failures(rng, nodes, horizon_s, mtbf_s=nodes * mtbf_s, repair_median_s=1.0), horizon_s, mtbf_s)


@checkpoint.own_cases
def own_cases(work: CheckpointWork, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {
        "machine": work.machine.name, "gpus": how.gpus, "ep": how.ep, "every": how.every, "iterations": work.iterations,
        "spans": work.spans.shape[1], "state_bytes": work.state, "notes": list(work.notes),
    }  # fmt: skip
    yield Case(name, parameters=facts, kinds=_SIMULATED | {"file"} | (_FAILURES if work.outages is not None else frozenset()))


@checkpoint.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes 40 iterations of load of gpt-moe-125m, and a trace of three failures."""
    from armillary.streams import stream

    from .workload import expert_load

    load = expert_load(stream(0, "checkpoint", "example"), 40, 12, 8, 2048 * 8 * 2)
    rows = ["iteration,layer," + ",".join(f"expert_{e}" for e in range(8))]
    rows += [f"{t},{m}," + ",".join(map(str, load[t, m])) for t in range(40) for m in range(12)]
    path, trace = folder / "load.csv", folder / "failures.csv"
    path.write_text("\n".join(rows) + "\n")
    trace.write_text("time_s,rank\n1000,3\n4000,12\n4000,5\n")
    return path, {"model": "gpt-moe-125m", "gpus": "16", "failures": str(trace), "horizon_h": "2", "every": "0"}


@checkpoint.run
def run(technique: Any, case: Case) -> Outcome:
    """Simulates the training with the technique's checkpoints, or really trains, kills a rank and recovers."""
    if "measured" in case.kinds:
        from .runtime.measured import measure

        return measure(technique, case)
    from .simulation.outcome import metrics, trace

    work: CheckpointWork = case.workload
    try:
        found = technique.train(work)
    except InputError as error:
        # More replicas than nodes, for one.
        raise NotForThisCase(str(error)) from None
    left = [Artifact.quantiles("iteration", found.seconds[20:], "s")]
    if found.events:
        left.append(Artifact.timeline(trace(found)))
    return Outcome(metrics(work, found), left)


@checkpoint.answer
def answer(result: Result) -> str:
    """Names the technique with the shortest iterations among those that checkpoint, what it adds, and through failures the best goodput."""
    if "iteration_s" not in result.metrics:
        return "Ask for the metric iteration_s to get an answer."
    said = []
    plain = [case for case in result.cases if not {"failures", "measured"} & set(result.cases[case]["kinds"])]
    ranked = {case: found for case in plain if (found := result.on(case, "iteration_s", without={"none"}))}
    if ranked:
        said.append(_fastest(result, ranked))
    through = [case for case in result.cases if {"failures", "simulated"} <= set(result.cases[case]["kinds"])]
    if "goodput" in result.metrics:
        kept = {case: found for case in through if (found := result.on(case, "goodput"))}
        if kept:
            firsts = [max(found, key=lambda t: found[t]) for found in kept.values()]
            best = max(dict.fromkeys(firsts), key=firsts.count)
            shares = [found[best] for found in kept.values() if best in found]
            said.append(f"Through failures {best} keeps the most, {_range([100 * s for s in shares], 0)} % of the time.")
    if not said and (real := [one for case in result.cases if (one := _through_a_kill(result, case))]):
        said.append(" ".join(real))
    return " ".join(said) or "No technique that checkpoints ran on these cases."


def _through_a_kill(result: Result, case: str) -> str:
    """What a real run lost when one of its processes was killed."""
    if not {"state_equal", "real_lost_iterations"} <= set(result.metrics):
        return ""
    lost = result.on(case, "real_lost_iterations")
    same = [t for t in result.on(case, "iteration_s", without={"none"}) if result.on(case, "state_equal").get(t) == 1]
    if not same:
        return ""
    again = counted(round(lost[same[0]]), "iteration")
    beside = f", {counted(round(lost['none']), 'iteration')} without checkpoints" if "none" in lost else ""
    return f"On {case} {same[0]} ends with the weights of an undisturbed run after a killed process and trains {again} again{beside}."


def _fastest(result: Result, ranked: dict[str, dict[str, float]]) -> str:
    """One sentence; a technique within half a percent of the best shares the place."""
    near = {case: [t for t, s in found.items() if s <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    # Of those that are near the best equally often, the one that is nearest on the whole.
    away = {t: sum(found.get(t, math.inf) / min(found.values()) for found in ranked.values()) for t in dict.fromkeys(names)}
    best = min(away, key=lambda t: (-names.count(t), away[t]))
    won = [case for case, first in near.items() if best in first]
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    said = f"{best} has the shortest iterations of all that checkpoint, on {where}"
    if "overhead_ratio" in result.metrics:
        extra = [100 * value for case in won if (value := result.on(case, "overhead_ratio").get(best)) is not None]
        if extra:
            said += f", which it makes {_range(extra, 1)} % longer"
    if "checkpoint_interval_iters" in result.metrics:
        every = [value for case in won if (value := result.on(case, "checkpoint_interval_iters").get(best)) is not None]
        if every and max(every) > 1:
            said += f", with a complete checkpoint every {_range(every, 0)} iterations"
    gains = [ratio for case in won if best != "gemini" and (ratio := result.ratio(case, "iteration_s", best, "gemini"))]
    if gains and max(gains) >= 1.005:
        said += f"; gemini's take {_range(gains, 2)} times as long"
    with_it = sorted({t for case in won for t in near[case] if t != best})
    if with_it:
        some = " on some of them" if len(ranked) > 1 else ""
        said += f" ({listed(with_it)} {'is' if len(with_it) == 1 else 'are'} within half a percent{some})"
    return said + "."


def _range(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


@checkpoint.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds per iteration, and goodput through failures, by case."""
    drawn = []
    if "iteration_s" in result.metrics:
        drawn += result.panels("Seconds per iteration with checkpoints", "iteration_s", y="s", log_y=True)
    if "goodput" in result.metrics:
        drawn += result.panels("Share of the time that lasts through failures", "goodput")
    return drawn


def _simulated(case: Case, rng: np.random.Generator) -> CheckpointWork:
    from .simulation.machine import Machine
    from .workload import expert_load, moe_model, moe_work

    facts = case.parameters
    model = moe_model(facts["model"])
    assert model.moe is not None
    machine = Machine.of(case.cluster if case.cluster is not None else "dgx-a100", facts["gpus"], node_gbit=facts["node_gbit"])
    sparse = sum(count for layer, count in model.kinds if layer.mlp == "moe")
    routed = facts["sequences"] * facts["tokens"] * facts["ep"] * model.moe.top_k
    load = expert_load(rng, facts["iterations"], sparse, model.moe.experts, routed, how=facts["load"])
    outages = drawn_outages(rng, machine.nodes, facts["mtbf_s"], facts["horizon_s"]) if facts["mtbf_s"] else None
    return moe_work(
        model, machine, load, ep=facts["ep"], sequences=facts["sequences"], length=facts["tokens"], rng=rng, across=facts["across"],
        every=facts["every"], outages=outages, name=case.name,
    )  # fmt: skip


def _real(case: Case, rng: np.random.Generator) -> RealWork:
    from .runtime.measured import RealWork

    facts = dict(case.parameters)
    # Somewhere after the first checkpoints and before the end.
    kill = int(rng.integers(3, facts["iterations"] - 2))
    return RealWork(**facts, kill=kill, victim=int(rng.integers(1, facts["ranks"])), seed=int(rng.integers(1 << 31)))
