"""The collectives of a training step, each with its group, size and count. They are modelled, and exact for the schedules named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.errors import unknown
from armillary.llm.cost.memory import stage_params
from armillary.llm.cost.plan import Batch, Plan
from armillary.llm.model.shapes import Model

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"]
#: The bytes that each of n ranks sends per byte of the whole tensor.
_SENT = {"all-reduce": (2, True), "all-gather": (1, True), "reduce-scatter": (1, True), "all-to-all": (1, True), "send": (1, False)}


def sent_share(kind: str, degree: int) -> float:
    """The bytes that a rank sends per byte of the whole tensor: 2(n−1)/n for an all-reduce, (n−1)/n for its halves, 1 for a send."""
    if kind not in _SENT:
        raise unknown("collective", kind, _SENT)
    factor, ring = _SENT[kind]
    return factor * (degree - 1) / degree if ring else float(factor)


@dataclass(frozen=True)
class Collective:
    """`count` equal calls of one kind over a group (dp, fsdp, tp, pp, ep, cp) of `degree` ranks.

    `payload` is the size of the whole tensor in bytes, and `sent` is what each rank sends in total. `overlappable_with` names the work that
    may hide the collective: "forward", "backward", or nothing.
    """

    kind: Kind
    group: str
    degree: int
    payload: float
    count: int
    overlappable_with: tuple[str, ...] = ()

    @property
    def sent(self) -> float:
        """Bytes that one rank sends in the step."""
        return self.count * self.payload * sent_share(self.kind, self.degree)


def volumes(model: Model, plan: Plan, batch: Batch, *, stage: int = 0, width: int = 2) -> list[Collective]:
    """The collectives of one step on one device of a pipeline stage; `width` is the size in bytes of an activation and of a weight on the
    wire.

    Gradients travel in the plan's `gradient_bytes` where they are all-reduced, and in `width` with FSDP.
    """
    plan.check(model)
    m = plan.micro_batches(batch)
    tokens = plan.micro_batch * batch.tokens // plan.cp
    runs = [run for start, stop in plan.stages(model)[stage] for run in model.runs(start, stop)]
    layers, sparse = sum(n for _, n in runs), sum(n for kind, n in runs if kind.mlp == "moe")
    found: list[Collective] = _data(plan, *stage_params(model, plan, stage), m, width)
    if plan.tp > 1:
        passes = 3 if plan.recompute == "full" else 2  # A recomputed layer repeats its forward collectives.
        payload, count = float(tokens * model.hidden * width), passes * 2 * layers * m
        hides = ("forward", "backward") if plan.async_tp else ()
        if plan.sequence_parallel:
            found += [Collective(kind, "tp", plan.tp, payload, count, hides) for kind in ("all-gather", "reduce-scatter")]
        else:
            found.append(Collective("all-reduce", "tp", plan.tp, payload, count, hides))
    if plan.pp > 1:
        found.append(Collective("send", "pp", plan.pp, tokens * model.hidden * width / plan.tp, 2 * m * plan.vpp))
    if plan.ep > 1 and sparse and model.moe:
        each = tokens * model.moe.top_k * model.hidden * width / (plan.tp if plan.sequence_parallel else 1)
        found.append(Collective("all-to-all", "ep", plan.ep, each, 4 * sparse * m))
    if plan.cp > 1:
        found += _context(model, plan, tokens, layers * m, width)
    return found


def _data(plan: Plan, dense: int, experts: int, m: int, width: int) -> list[Collective]:
    found: list[Collective] = []
    for count, shards, copies in (
        (dense, plan.fsdp, plan.dp * plan.cp // plan.fsdp),
        (experts, plan.expert_fsdp, plan.dp * plan.cp // max(1, min(plan.ep, plan.dp * plan.cp)) // plan.expert_fsdp),
    ):
        if not count:
            continue
        gradients = float(count * plan.gradient_bytes)
        if shards > 1 and plan.zero >= 3:
            gathers = 1 if plan.keep_gathered else 2
            found.append(Collective("all-gather", "fsdp", shards, float(count * width), gathers * m, ("forward", "backward")))
            found.append(Collective("reduce-scatter", "fsdp", shards, float(count * width), m, ("backward",)))
            gradients = float(count * width) / shards
        elif shards > 1:
            found.append(Collective("reduce-scatter", "fsdp", shards, gradients, 1, ("backward",)))
            found.append(Collective("all-gather", "fsdp", shards, float(count * width), 1, ("forward",)))
            gradients /= shards
        if copies > 1:
            found.append(Collective("all-reduce", "dp", copies, gradients, 1, ("backward",)))
    return found


def _context(model: Model, plan: Plan, tokens: int, layers: int, width: int) -> list[Collective]:
    key, value = model.attention_widths
    kv = tokens * model.kv_heads * (key + value) * width / plan.tp
    if plan.cp_kind == "ring":
        # K and V circulate in the forward pass; K, V and their gradients circulate in the backward pass.
        return [Collective("send", "cp", plan.cp, kv, (plan.cp - 1) * 3 * layers, ("forward", "backward"))]
    q = tokens * model.heads * (key + value) * width / plan.tp
    return [Collective("all-to-all", "cp", plan.cp, q + kv, 2 * layers)]
