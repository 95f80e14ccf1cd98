"""Optimizers and quantisers work on blocks and whole matrices; the shardings here differ in what they cut, copy and pad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from .layouts.sharding import Sharding
    from .workload import Planned, Trained

_MEASURED, _PLANNED = frozenset({"measured"}), frozenset({"planned"})

sharding = Arena(
    "training/sharding",
    question="My optimizer or quantiser works on blocks or whole matrices: how should parameters be sharded so that nothing is cut, "
    "nothing is copied and little is padded?",
    metrics=[
        Metric("step_s", unit="s", kind="measured", on=_MEASURED, doc="a training step on the slowest rank, as the median of the steps"),
        Metric("tokens_per_s", unit="tok/s", better="higher", kind="measured", on=_MEASURED, doc="tokens of all ranks over the step"),
        Metric(
            "peak_state_bytes", unit="B", kind="measured", on=_MEASURED, steady=True,
            doc="parameters, gradients, optimizer state and communication buffers that live at once on a rank",
        ),
        Metric(
            "copy_bytes", unit="B", kind="measured", on=_MEASURED, steady=True, scale="difference",
            doc="bytes copied between parameters or gradients and communication buffers per step and rank",
        ),
        Metric("comm_bytes", unit="B", kind="measured", on=_MEASURED, steady=True, doc="payload of collectives per step and rank, once"),
        Metric("plan_s", unit="s", kind="measured", on=_MEASURED, doc="seconds of laying the parameters out"),
        Metric(
            "loss_gap", kind="measured", on=_MEASURED, steady=True, scale="difference",
            doc="distance of the last loss from that of a single process",
        ),
        Metric("padding_ratio", kind="modelled", scale="difference", doc="elements of the buffers over those of the parameters, minus 1"),
        Metric("cut_blocks", kind="modelled", scale="difference", doc="blocks that lie on more than one rank"),
        Metric("planned_step_s", unit="s", kind="modelled", on=_PLANNED, doc="a training step with padded collectives and with copies"),
        Metric("planned_state_bytes", unit="B", kind="modelled", on=_PLANNED, doc="state and buffers per GPU, without activations"),
    ],
    techniques={
        "ddp": ".ddp:Ddp",
        "fsdp1-flat": ".fsdp1_flat:Fsdp1Flat",
        "fsdp2-rowwise": ".fsdp2_rowwise:Fsdp2Rowwise",
        "zero3-elementwise": ".zero3_elementwise:Zero3Elementwise",
        "megatron-fsdp": ".megatron_fsdp:MegatronFsdp",
        "vescale-fsdp": ".vescale_fsdp:VeScaleFsdp",
    },
    papers={"vescale-fsdp": "vescale-fsdp"},
    baseline="fsdp2-rowwise",
    tradeoff=("planned_step_s", "planned_state_bytes"),
    # A measured unit already holds many steps.
    repeats=1,
    telling=["tiny-gpt-n2-adam8bit", "tiny-moe-n2-adam8bit", "llama-3-70b-n64", "gpt-oss-120b-n1024"],
    constants=[
        Constant("planned work", "8,192 tokens", "", "one sequence per GPU, with full recomputation; our choice"),
        Constant("planned machine", "dgx-h100", "", "armillary.llm, calibrated; one 400 Gb/s port per GPU between nodes"),
        Constant("wire", 2, "B", "weights and gradients travel in bfloat16, as armillary.llm's FSDP does"),
        Constant("state", "2 + 4 + 4", "B", "weight, gradient and master weight per element; moments take 8, or 2 in 8-bit Adam"),
        Constant("update", "30 and 18", "B", "moved per element by AdamW and by 8-bit Adam, at the device's memory bandwidth"),
    ],
)  # fmt: skip

#: The tiny transformers of `armillary.llm`, by the name of their case.
MODELS = {"tiny-gpt": "tiny-llama", "tiny-moe": "tiny-moe"}
#: By scale: the width and layers (None keeps the model's own), steps, sequences, tokens, and how the ranks run.
SIZES: dict[str, tuple[int | None, int, int, int, int, str]] = {
    "tiny": (32, 2, 4, 4, 16, "threads"),
    "small": (None, 4, 20, 8, 64, "gloo"),
    "large": (None, 4, 60, 8, 128, "gloo"),
}
#: Blocks of 8-bit Adam in real runs: 32 rows.
ROWS = 32
LR = 1e-3
#: The planned models, each with its usual blocks; claims are made for these. The sweep has all blocks on all numbers of GPUs.
PLANNED = {"llama-3-70b": "32", "gpt-oss-120b": "32", "deepseek-v3": "128x128"}
SWEEP_RANKS = (8, 64, 256, 1024, 10240)
SWEEP_BLOCKS = ("1", "row", "32", "128", "128x128", "whole")
#: The tiny scale's cases: threads stand for processes, whose start would take most of the time.
TINY = ("tiny-gpt-n2-adamw", "tiny-moe-n2-adam8bit", "llama-3-70b-n64", "gpt-oss-120b-n1024")
#: What a rank runs.
PROGRAM = "armillary.training.sharding.runtime.training:train"
#: How far a weight may be from that of a single process, as a share of the way that the optimizer's steps can go.
FAR = {"adamw": 0.05, "adam8bit": 0.25}
#: The same in float64, in which rounding decides nothing.
FAR_EXACT = 1e-6


@sharding.cases
def cases(scale: str) -> Iterator[Case]:
    """Two tiny transformers that are really trained, on 2 and 4 ranks with two optimizers, and three large models that are planned: with
    their usual blocks on 64 and 1,024 GPUs, and with all blocks on 8 to 10,240.
    """
    return (case for case in _every_case(scale) if scale != "tiny" or case.name in TINY)


def _every_case(scale: str) -> Iterator[Case]:
    width, layers, steps, count, length, backend = SIZES[scale]
    for name in MODELS:
        for n in (2, 4):
            for optimizer in ("adamw", "adam8bit"):
                yield Case(f"{name}-n{n}-{optimizer}", _trained, {
                    "model": name, "ranks": n, "optimizer": optimizer, "rows": ROWS if width is None else 8, "width": width,
                    "layers": layers, "steps": steps, "sequences": count, "tokens": length, "backend": backend,
                }, frozenset({"measured", "elementwise" if optimizer == "adamw" else "blocks"}))  # fmt: skip
    for name, block in PLANNED.items():
        for n in (64, 1024):
            yield _planned_case(f"{name}-n{n}", name, n, block, "usual")
    for name, usual in PLANNED.items():
        for n in SWEEP_RANKS:
            for block in SWEEP_BLOCKS:
                if (n, block) not in ((64, usual), (1024, usual)):
                    yield _planned_case(f"{name}-n{n}-{block}", name, n, block, "sweep")


def _planned_case(name: str, model: str, n: int, block: str, kind: str) -> Case:
    return Case(name, _model, {"model": model, "ranks": n, "block": block, "optimizer": "adam8bit", "tokens": 8192}, _PLANNED | {kind})


@dataclass(frozen=True)
class Reading:
    """How a model's parameters are sharded, and on which machine."""

    ranks: int = parameter(64, "the number of GPUs that share the parameters", range=(2, 1 << 20))
    block: str = parameter("32", "what must not be cut: 1, row, whole, 32 (rows), 128x128, or a JSON or TOML file of rules", file=True)
    optimizer: str = parameter("adam8bit", "the optimizer whose state is counted", choices=("adamw", "adam8bit"))
    tokens: int = parameter(8192, "tokens per GPU and step", range=(1, 1 << 24))
    cluster: str = parameter("dgx-h100", "a preset or a cluster file, whose GPUs and links are used", file=True)


@sharding.read(Reading)
def read(path: Path, how: Reading) -> Planned:
    """Reads parameters from a Hugging Face `config.json` or from the header of a `.safetensors` file (no weight is read)."""
    from armillary.cluster import find
    from armillary.llm import Model

    from .readers.blocks import read_blocks
    from .readers.safetensors_header import by_module, read_header
    from .workload import planned, shapes_of

    blocks = read_blocks(how.block)
    if path.suffix == ".safetensors":
        model, modules = None, by_module(read_header(path))
    elif path.suffix == ".json":
        model = Model.from_config(path)
        modules = shapes_of(model)
    else:
        raise InputError(f"found {path.name}; expected a config.json or a .safetensors file", where=str(path))
    return planned(modules, how.ranks, blocks, model=model, optimizer=how.optimizer, tokens=how.tokens, cluster=find(how.cluster))


@sharding.own_cases
def own_cases(work: Planned, name: str, how: Reading) -> Iterator[Case]:
    """The model as one planned case."""
    block = Path(how.block).name
    facts = {"ranks": how.ranks, "block": block, "optimizer": how.optimizer, "tokens": how.tokens, "device": work.machine[0].name}
    yield Case(name, parameters=facts, kinds=_PLANNED | {"file"})


@sharding.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the header of a safetensors file with two layers (and data of zeros), and rules for its blocks."""
    import json

    header, at = {}, 0
    for layer in range(2):
        for name, shape in (("mlp.up_proj.weight", [96, 32]), ("mlp.down_proj.weight", [32, 96]), ("norm.weight", [32])):
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[f"model.layers.{layer}.{name}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            at += size
    text = json.dumps(header).encode()
    file, rules = folder / "model.safetensors", folder / "rules.json"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    rules.write_text(json.dumps([{"pattern": "*.mlp.*", "block": [16, 16]}]))
    return file, {"ranks": "4", "block": str(rules)}


@sharding.run
def run(technique: Sharding, case: Case) -> Outcome:
    """Trains on real ranks, or plans and models a step."""
    return _planned(technique, case) if "planned" in case.kinds else _measured(technique, case)


def _planned(technique: Sharding, case: Case) -> Outcome:
    from .cost.step import ALIGN, modelled

    work: Planned = case.workload
    found = modelled(technique, work)
    values = {
        "padding_ratio": found.padding, "cut_blocks": float(found.cut_blocks), "planned_step_s": found.step_s,
        "planned_state_bytes": found.state_bytes,
    }  # fmt: skip
    rows = [
        {"group": i, "modules": group.modules, "buffer": j, "tensors": len(b.weights), "elements": b.elements, "shard": b.shard,
         "padding": b.padded / b.elements - 1, "cut_blocks": b.cut_blocks()}
        for i, group in enumerate(technique.groups(work.modules, work.n, ALIGN)) for j, b in enumerate(group.buckets)
    ]  # fmt: skip
    return Outcome(values, [Artifact.table("buffers", rows[:10_000]), Artifact.timeline(_timeline(found.events))])


def _timeline(events: Sequence[tuple[str, str, float, float]]) -> dict[str, Any]:
    lanes = ("compute", "communication")
    found: list[dict[str, Any]] = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": x}} for i, x in enumerate(lanes)]
    for lane, name, start, seconds in events[:20_000]:
        found.append({"ph": "X", "name": name, "pid": 0, "tid": lanes.index(lane), "ts": 1e6 * start, "dur": 1e6 * seconds})
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _measured(technique: Sharding, case: Case) -> Outcome:
    import statistics

    import numpy as np

    from armillary import comm, extras
    from armillary.arena import parameters

    extras.need("torch")
    work: Trained = case.workload
    kind = type(technique)
    settings = {name: getattr(technique, name) for name in parameters(kind)}
    limit: dict[str, Any] = {"timeout": work.timeout} if work.backend == "gloo" else {}
    target = f"{kind.__module__}:{kind.__qualname__}"

    def trained(how: Mapping[str, Any]) -> list[dict[str, Any]]:
        return comm.run(PROGRAM, target, settings, dict(how), work.tokens, ranks=work.n, backend=work.backend, **limit).values

    ran = trained(work.work)
    single = case.once(_single)
    far, reach = _distance(ran[0], single), work.work["lr"] * len(work.tokens)
    if far > FAR[work.work["optimizer"]] * reach:
        # A token whose experts nearly tie goes to another one by a rounding, and training goes on differently; not so in float64.
        far = _distance(trained(work.exact)[0], case.once(_single_exact))
        if far > FAR_EXACT * reach:
            raise RuntimeError(f"a weight is {far:.2g} from that of a single process, where all steps together reach {reach:.2g}")
    steps = np.max([one["seconds"] for one in ran], axis=0)
    step_s = statistics.median(steps.tolist())
    lower, upper = np.quantile(steps, (0.25, 0.75))
    values = {
        "step_s": step_s, "tokens_per_s": work.tokens[0, :, 1:].size / step_s, "plan_s": max(one["plan_s"] for one in ran),
        "peak_state_bytes": float(max(one["peak"] for one in ran)), "copy_bytes": float(max(one["copied"] for one in ran)),
        "comm_bytes": float(max(one["sent"] for one in ran)), "loss_gap": abs(ran[0]["losses"][-1] - single["losses"][-1]),
        "padding_ratio": ran[0]["padding"], "cut_blocks": float(ran[0]["cut"]),
    }  # fmt: skip
    losses = [{"step": i, "loss": a, "single": b} for i, (a, b) in enumerate(zip(ran[0]["losses"], single["losses"]))]
    left = [Artifact.quantiles("step", steps, "s"), Artifact.table("losses", losses)]
    return Outcome(values, left, noisy=bool(upper - lower > 0.5 * step_s))


def _distance(ran: Mapping[str, Any], single: Mapping[str, Any]) -> float:
    """The largest difference of a weight."""
    import numpy as np

    return max(float(np.abs(ran["state"][name] - weight).max()) for name, weight in single["state"].items())


def _single(case: Case) -> dict[str, Any]:
    """The same training in a single process."""
    return _alone(case.workload, case.workload.work)


def _single_exact(case: Case) -> dict[str, Any]:
    return _alone(case.workload, case.workload.exact)


def _alone(work: Trained, how: Mapping[str, Any]) -> dict[str, Any]:
    from armillary import comm

    whole = "armillary.training.sharding.ddp:Ddp"
    found: dict[str, Any] = comm.run(PROGRAM, whole, {}, dict(how), work.tokens, ranks=1, backend="one").values[0]
    return found


@sharding.answer
def answer(result: Result) -> str:
    """Says what keeps all blocks whole, and what that costs against the fastest sharding that cuts them."""
    need = {"planned_step_s", "step_s"} & set(result.metrics)
    if not need:
        return "Ask for the metric planned_step_s or step_s to get an answer."
    said = []
    for metric, words in (("planned_step_s", "planned"), ("step_s", "measured")):
        if metric not in need:
            continue
        found = [one for case in result.cases if (one := _beside(result, case, metric))]
        if found:
            firsts = [best for best, _, _ in found]
            best = max(dict.fromkeys(firsts), key=firsts.count)
            ratios = [ratio for name, _, ratio in found if name == best]
            where = f"{len(ratios)} of {len(found)} {words} cases" if len(found) > 1 else f"the {words} case"
            times = f"{_span(ratios)} times as long as that of the fastest sharding"
            said.append(f"{best} cuts no block on {where}, and its step takes {times}")
    if not said:
        return "No sharding without cut blocks was run on these cases."
    return ". ".join(said) + "."


def _beside(result: Result, case: str, metric: str) -> tuple[str, float, float] | None:
    """The fastest technique that shards and cuts nothing on a case, its value, and its ratio to the fastest that shards."""
    shared = result.on(case, metric, without={"ddp"})
    cut = result.on(case, "cut_blocks") if "cut_blocks" in result.metrics else {}
    whole = [name for name in shared if cut.get(name, 1.0) == 0]
    if not whole:
        return None
    return whole[0], shared[whole[0]], shared[whole[0]] / next(iter(shared.values()))


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


@sharding.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds per step and bytes of state, of real runs and of planned ones."""

    def place(kind: str) -> Any:
        return lambda case, facts: (kind, case) if kind in facts["kinds"] else None

    drawn: list[Any] = []
    for metric, title, kind in (
        ("planned_step_s", "Seconds per planned step", "planned"), ("planned_state_bytes", "Bytes of state per GPU", "planned"),
        ("step_s", "Seconds per real step", "measured"), ("peak_state_bytes", "Bytes of state per rank", "measured"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, place(kind), log_y=True)
    return drawn


def _trained(case: Case, rng: np.random.Generator) -> Trained:
    from armillary.llm.tiny.transformer import BUILT_IN

    from .workload import Trained, sequences

    p: Mapping[str, Any] = case.parameters
    config = {**BUILT_IN[MODELS[p["model"]]], "num_hidden_layers": p["layers"]}
    if p["width"] is not None:
        config |= {"hidden_size": p["width"], "intermediate_size": 44, "vocab_size": 64}
        if "num_local_experts" in config:
            config["num_local_experts"] = 4
    tokens = sequences(rng, p["steps"], p["sequences"], p["tokens"], config["vocab_size"])
    blocks: Any = 1 if p["optimizer"] == "adamw" else [p["rows"], 0]
    work = {"config": config, "seed": 0, "dtype": "float32", "optimizer": p["optimizer"], "lr": LR, "blocks": blocks}
    return Trained(work, tokens, p["ranks"], p["backend"])


def _model(case: Case, rng: np.random.Generator) -> Planned:
    from armillary.llm import Model

    from .readers.blocks import read_blocks
    from .workload import planned, shapes_of

    p: Mapping[str, Any] = case.parameters
    model = Model.preset(p["model"])
    return planned(shapes_of(model), p["ranks"], read_blocks(p["block"]), model=model, optimizer=p["optimizer"], tokens=p["tokens"])
