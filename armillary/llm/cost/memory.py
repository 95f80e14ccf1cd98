"""What a device must hold: its activations term by term, and whether a plan fits.

Activations follow Korthikanti et al., Reducing activation recomputation in large transformer models, MLSys 2023 (arXiv 2205.05198), as
named terms instead of one constant, so that grouped heads, gated MLPs, experts and FlashAttention have sums of their own. A fused
activation is assumed (the gated product keeps its two inputs and its output). Everything is modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from armillary.errors import InputError, unknown
from armillary.llm.cost.counts import (
    Flops,
    TrainState,
    kv_bytes,
    kv_bytes_per_token,
    kv_share,
    layer_flops,
    local_bytes,
    local_params,
    local_shape,
)
from armillary.llm.cost.device import Chip, chip
from armillary.llm.cost.plan import RECOMPUTE, Batch, Plan, Recompute
from armillary.llm.model.shapes import Layer, Model, Tensor

if TYPE_CHECKING:
    from armillary.llm.serving.replica import Replica

Attention = Literal["flash", "unfused"]
#: The memory of an adapter slot relative to its matrices: padding and the buffers of the kernels add to it. The factor follows from vLLM's
#: measured KV tokens.
SLOT_OVERHEAD = 1.16


@dataclass(frozen=True)
class Term:
    """Bytes that one token of a layer leaves for the backward pass.

    `split` says whether the term is always divided over the tp devices ("tensor") or only with sequence parallelism ("sequence"). `group`
    names the part whose recomputation replaces it.
    """

    name: str
    per_token: int
    split: Literal["tensor", "sequence"]
    group: Literal["core", "mlp", "rest"] = "rest"


def activation_terms(model: Model, layer: Layer, tokens: int, attention: Attention = "flash") -> tuple[Term, ...]:
    """Every tensor that a layer keeps for its backward pass, in bytes per token of a sequence of `tokens` (bf16)."""
    if attention not in ("flash", "unfused"):
        raise unknown("attention", str(attention), ("flash", "unfused"))
    h = model.hidden
    terms = [Term("input norm", 2 * h, "sequence"), Term("attention input", 2 * h, "sequence"), *_attention_terms(model, layer)]
    if attention == "flash":
        terms.append(Term("log-sum-exp", 4 * model.heads, "tensor", "core"))
    else:
        terms.append(Term("softmax", 2 * model.heads * tokens, "tensor", "core"))
        if model.dropout:
            terms.append(Term("softmax dropout mask", model.heads * tokens, "tensor", "core"))
            terms.append(Term("dropped softmax", 2 * model.heads * tokens, "tensor", "core"))
    norms = sum(t.role == "norm" and t.outputs == h for t in layer.tensors)
    if norms > 1:
        terms += [Term("MLP norm", 2 * h, "sequence"), Term("MLP input", 2 * h, "sequence")]
    terms += [Term(f"norm {i + 1}", 2 * h, "sequence") for i in range(2, norms)]
    terms += _moe_terms(model) if layer.mlp == "moe" else _mlp_terms(model)
    if model.dropout:
        terms += [Term("attention dropout mask", h, "sequence"), Term("MLP dropout mask", h, "sequence")]
    return tuple(terms)


def _attention_terms(model: Model, layer: Layer) -> Iterator[Term]:
    key, value = model.attention_widths
    if model.mla:
        if model.mla.q_rank:
            yield Term("compressed query, and normed", 4 * model.mla.q_rank, "sequence")
        yield Term("compressed key-value, and normed", 4 * model.mla.kv_rank + 2 * model.mla.rope, "sequence")
        yield Term("q, k, v", 2 * model.heads * (2 * key + value), "tensor")
    else:
        yield Term("q, k, v", 2 * (model.heads + 2 * model.kv_heads) * key, "tensor")
        if any(t.name == "q_norm" for t in layer.tensors):
            yield Term("q, k before their norms", 2 * (model.heads + model.kv_heads) * key, "tensor")
    yield Term("attention output", 2 * model.heads * value, "tensor")


def _mlp_terms(model: Model) -> list[Term]:
    if model.gated:
        return [Term("gate and up", 4 * model.ffn, "tensor", "mlp"), Term("gated product", 2 * model.ffn, "tensor", "mlp")]
    return [Term("up", 2 * model.ffn, "tensor", "mlp"), Term("activated", 2 * model.ffn, "tensor", "mlp")]


def _moe_terms(model: Model) -> list[Term]:
    moe = model.moe
    assert moe is not None
    terms = [
        Term("router logits", 4 * moe.experts, "sequence"),
        Term("dispatched tokens", 2 * moe.top_k * model.hidden, "sequence"),
        Term("experts' gate and up", 4 * moe.top_k * moe.ffn, "tensor", "mlp"),
        Term("experts' gated product", 2 * moe.top_k * moe.ffn, "tensor", "mlp"),
        Term("experts' outputs", 2 * moe.top_k * model.hidden, "sequence"),
    ]
    if moe.shared_ffn:
        terms.append(Term("shared experts' gate, up and product", 6 * moe.shared_ffn, "tensor", "mlp"))
    return terms


@dataclass(frozen=True)
class Activations:
    """Bytes that one layer keeps for a micro-batch on one device, by term, and the flops that recompute the others."""

    terms: dict[str, float]
    extra_flops: int

    @property
    def total(self) -> float:
        """Bytes of all terms."""
        return sum(self.terms.values())


def activations(
    model: Model, layer: Layer, sequences: int, tokens: int, *, tp: int = 1, cp: int = 1, sequence_parallel: bool = False,
    recompute: Recompute = "none", attention: Attention = "flash",
) -> Activations:  # fmt: skip
    """What one layer keeps of `sequences` of `tokens` each. `recompute` is none, selective (the core of attention), mlp, or full (only the
    input is kept). Extra flops are those of the whole layer, on all devices together.
    """
    if recompute not in RECOMPUTE:
        raise unknown("recompute", str(recompute), RECOMPUTE)
    each, here = tokens // cp, sequences * tokens / cp
    ways = {"tensor": tp, "sequence": tp if sequence_parallel else 1}
    if recompute == "full":
        kept: tuple[Term, ...] = (Term("layer input", 2 * model.hidden, "sequence"),)
    else:
        dropped = {"none": "", "selective": "core", "mlp": "mlp"}[recompute]
        kept = tuple(t for t in activation_terms(model, layer, each, attention) if t.group != dropped)
    work = layer_flops(model, layer, [(tokens, 0)] * sequences)
    return Activations({t.name: here * t.per_token / ways[t.split] for t in kept}, _extra(layer, work, sequences * tokens, recompute))


def _extra(layer: Layer, work: Flops, tokens: int, recompute: Recompute) -> int:
    if recompute == "full":
        return work.forward
    if recompute == "selective":
        return work.attention
    if recompute == "mlp":
        return 2 * tokens * sum(t.multiplied for t in layer.tensors if t.role.endswith("gate_up"))
    return 0


@dataclass(frozen=True)
class MemoryReport:
    """Bytes on the fullest device of a plan, by part; `host` counts what was moved to the host."""

    parts: dict[str, float]
    host: float
    capacity: float
    #: The pipeline stage that needs the most memory.
    stage: int
    kind: str = field(default="modelled", init=False)

    @property
    def total(self) -> float:
        """Bytes needed."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether the device can hold it."""
        return self.total <= self.capacity

    @property
    def free(self) -> float:
        """Bytes left; negative when it does not fit."""
        return self.capacity - self.total


def fits(
    model: Model, plan: Plan, device: Chip | str, batch: Batch | None = None, *, kv_tokens: int = 0, kv_dtype: str | None = None,
    workspace: float = 2.0**30, fragmentation: float = 0.04,
) -> MemoryReport:  # fmt: skip
    """Whether a plan fits a device, and how many bytes each part takes. A `batch` means training; without one the plan serves with
    `kv_tokens` cached tokens.

    Training keeps mixed-precision Adam state (`TrainState`), the activations of every micro-batch in flight (in the 1F1B schedule,
    interleaved when vpp > 1) and, where layers are recomputed, all activations of one layer.
    """
    plan.check(model)
    if kv_tokens < 0 or workspace < 0 or not 0 <= fragmentation < 1:
        raise InputError("expected kv_tokens and workspace of 0 or more and a fragmentation of 0 to 1")
    capacity = chip(device).memory
    reports = []
    for stage in range(plan.pp):
        parts, host = _stage_parts(model, plan, stage, batch, kv_tokens, kv_dtype)
        parts["workspace"] = workspace
        parts["fragmentation"] = fragmentation * sum(parts.values())
        reports.append(MemoryReport(parts, host, capacity, stage))
    return max(reports, key=lambda report: report.total)


def stage_params(model: Model, plan: Plan, stage: int) -> tuple[int, int]:
    """(parameters, parameters of experts) that one device of a stage holds, before any sharding over data-parallel devices."""
    dense = experts = 0
    for start, stop in plan.stages(model)[stage]:
        for kind, count in model.runs(start, stop):
            key = (id(kind), plan.tp, plan.ep, plan.expert_tp)
            found = model.memo.get(key)
            if found is None:
                found = model.memo[key] = _split([(t, 1) for t in kind.tensors], model, plan)
            dense, experts = dense + count * found[0], experts + count * found[1]
    return dense + _split(_once(model, plan, stage), model, plan)[0], experts


def _split(tensors: list[tuple[Tensor, int]], model: Model, plan: Plan) -> tuple[int, int]:
    dense = experts = 0
    for tensor, n in tensors:
        count = n * local_params(model, tensor, plan.tp, plan.ep, plan.expert_tp)
        if tensor.role.startswith("expert"):
            experts += count
        else:
            dense += count
    return dense, experts


def _once(model: Model, plan: Plan, stage: int) -> list[tuple[Tensor, int]]:
    """The tensors outside the layers that a stage holds; a tied head on another stage needs its own copy of the embedding."""
    first, last = stage == 0, stage == plan.pp - 1
    if not (first or last):
        return []
    return [(t, 1) for t in model.once if (first or (last and model.tied and t.split == "vocabulary") if t.part == "embedding" else last)]


def stage_tensors(model: Model, plan: Plan, stage: int) -> list[tuple[Tensor, int]]:
    """(tensor, number of copies) that a stage holds: its layers, the embedding on the first stage, the norm and the head on the last."""
    found = [
        (tensor, count) for start, stop in plan.stages(model)[stage] for kind, count in model.runs(start, stop) for tensor in kind.tensors
    ]
    return found + _once(model, plan, stage)


def _stage_parts(
    model: Model, plan: Plan, stage: int, batch: Batch | None, kv_tokens: int, kv_dtype: str | None
) -> tuple[dict[str, float], float]:
    held = stage_tensors(model, plan, stage)
    if batch is None:
        share = kv_share(model, plan.tp) * sum(stop - start for start, stop in plan.stages(model)[stage]) / model.layers
        weights = sum(n * local_bytes(model, t, plan.tp, plan.ep, plan.expert_tp) for t, n in held)
        return {"weights": weights, "kv": kv_bytes(model, kv_tokens, kv_dtype) * share}, 0.0
    state = TrainState(gradient=plan.gradient_bytes)
    weights = gradients = optimizer = 0.0
    for t, n in held:
        count = n * local_params(model, t, plan.tp, plan.ep, plan.expert_tp)
        shards = plan.expert_fsdp if t.role.startswith("expert") else plan.fsdp
        weights += count * state.weight / (shards if plan.zero >= 3 else 1)
        gradients += count * state.gradient / (shards if plan.zero >= 2 else 1)
        optimizer += count * state.optimizer / shards
    parts = {
        "weights": weights, "gradients": gradients, "optimizer": optimizer, "activations": _stage_activations(model, plan, stage, batch),
    }  # fmt: skip
    host = sum(parts[name] for name in plan.offload)
    parts.update(dict.fromkeys(plan.offload, 0.0))
    if (plan.fsdp > 1 and plan.zero >= 3) or "weights" in plan.offload:
        parts["gathered"] = 2 * 2.0 * max(_layer_params(model, plan, kind) for kind, _ in model.kinds)
    return parts, host


def _layer_params(model: Model, plan: Plan, layer: Layer) -> int:
    return sum(local_params(model, t, plan.tp, plan.ep, plan.expert_tp) for t in layer.tensors)


def in_flight(plan: Plan, stage: int, micro_batches: int) -> float:
    """Micro-batches whose activations a stage holds at the worst moment, in units of the stage's whole share of layers."""
    if plan.vpp == 1:
        return float(min(micro_batches, plan.pp - stage))
    runs = min(micro_batches * plan.vpp, 2 * (plan.pp - stage - 1) + (plan.vpp - 1) * plan.pp + 1)
    return runs / plan.vpp


def _stage_activations(model: Model, plan: Plan, stage: int, batch: Batch) -> float:
    def of(kind: Layer, recompute: Recompute) -> float:
        return activations(
            model, kind, plan.micro_batch, batch.tokens, tp=plan.tp, cp=plan.cp, sequence_parallel=plan.sequence_parallel,
            recompute=recompute, attention=plan.attention,
        ).total  # fmt: skip

    held = [run for start, stop in plan.stages(model)[stage] for run in model.runs(start, stop)]
    micro_batches = plan.micro_batches(batch)
    total = in_flight(plan, stage, micro_batches) * sum(n * of(kind, plan.recompute) for kind, n in held)
    if plan.recompute != "none":
        total += max(of(kind, "none") - of(kind, plan.recompute) for kind, _ in held)
    if stage == plan.pp - 1:
        here = plan.micro_batch * batch.tokens / plan.cp
        wide = sum(local_shape(model, t, plan.tp)[2] for t in model.once if t.role == "head")
        total += here * (4 * model.hidden / (plan.tp if plan.sequence_parallel else 1) + 4 * wide)
    return total


def slot_bytes(model: Model, rank: int, overhead: float = 1.0) -> float:
    """Bytes of a slot for one adapter of `rank`: overhead·rank·Σ(inputs + outputs)·2 over the adapters' targets, or over all matrices."""
    reach = model.lora_reach or sum(n * t.copies * (t.inputs + t.outputs) for kind, n in model.kinds for t in kind.tensors if t.matmul)
    return overhead * rank * reach * 2


def kv_blocks(replica: Replica) -> int:
    """The blocks of KV that fit on a replica's devices beside weights, reserve and slots for adapters.

    ⌊(u·memory − weights/(t·s) − reserve − slots·slot)/(block · KV bytes of a token on one device)⌋. It raises an `InputError` when fewer
    tokens are left than the longest request may have, because engines then refuse to start.
    """
    model, on = replica.shape(), chip(replica.device)
    slots = replica.slots * slot_bytes(model, replica.max_rank, SLOT_OVERHEAD) if replica.slots else 0.0
    free = replica.memory_share * on.memory - model.weight_bytes() / (replica.tp * replica.pp) - replica.reserve_bytes - slots
    each = replica.block * kv_bytes_per_token(model) * kv_share(model, replica.tp) / replica.pp
    blocks = int(free // each)
    longest = replica.max_model_len or model.max_length or replica.block
    if blocks * replica.block < longest:
        raise InputError(
            f"{model.name} on {replica.tp * replica.pp} × {on.name}: {max(0, blocks) * replica.block} tokens of KV are left; "
            f"expected at least {longest} (lower max_model_len)"
        )
    return blocks
