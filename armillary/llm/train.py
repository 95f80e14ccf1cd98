"""Seconds of a training step: each stage's forward, both halves of its backward and what it recomputes, and what is exposed.

Compute comes from the same operators as serving's. Modelled; arenas that schedule replace the bubble's formula by their simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.llm.collectives import Collective, volumes
from armillary.llm.cost import flops, layer_flops, local_shape, pair_flops, pairs
from armillary.llm.device import Chip, Fabric, chip
from armillary.llm.memory import activations, stage_params
from armillary.llm.plan import Batch, Plan
from armillary.llm.shapes import Layer, Model, Tensor
from armillary.llm.time import (
    Setting,
    attention_seconds,
    collective_seconds,
    element_seconds,
    gemm_seconds,
    token_operators,
    unfused_attention_seconds,
)

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Roles whose seconds in `token_operators` are matrix products.
_PRODUCTS = ("q_a", "q_b", "kv_a", "kv_b", "qkv", "o", "gate_up", "down", "router", "shared_gate", "shared_gate_up", "shared_down")
_EXPERTS = ("expert_gate_up", "expert_down")
#: Bytes that Adam moves for a parameter: gradient in; master weight and both moments in and out; weight out.
_UPDATE = 30.0


@dataclass(frozen=True)
class StageCost:
    """One pipeline stage, one micro-batch, seconds on one device without collectives; and the bytes it keeps and sends on."""

    forward: float
    backward_input: float
    backward_weight: float
    recompute: float
    activation_bytes: float
    send_bytes: float

    @property
    def compute(self) -> float:
        """All of a micro-batch's work on the stage."""
        return self.forward + self.backward_input + self.backward_weight + self.recompute


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, and the share of the peak that it makes: `mfu` for the model's flops, `hfu` with those done again."""

    compute: float
    exposed_comm: float
    bubble: float
    optimizer: float
    total: float
    mfu: float
    hfu: float
    #: Which calibration the seconds rest on.
    calibration: str
    kind: str = field(default="modelled", init=False)


def train(model: Model, plan: Plan, batch: Batch, device: Chip | str) -> list[StageCost]:
    """What each pipeline stage costs for one micro-batch; the stages' sums are the whole model's."""
    plan.check(model)
    plan.micro_batches(batch)
    on = chip(device)
    met = min(plan.ep, plan.dp * plan.cp)
    setting = Setting(on, Fabric.of(on), plan.tp, plan.ep, expert_tp=plan.expert_tp, gathered=met)
    kinds = {kind: _layer_cost(model, kind, plan, batch, setting) for kind, _ in model.kinds}
    tokens = plan.micro_batch * batch.tokens // plan.cp
    found = []
    for stage in range(plan.pp):
        runs = [run for start, stop in plan.stages(model)[stage] for run in model.runs(start, stop)]
        f, i, w, r = (sum(n * kinds[kind][j] for kind, n in runs) for j in range(4))
        kept = sum(n * _kept(model, kind, plan, batch) for kind, n in runs)
        if stage == 0:
            f += element_seconds(on, "embedding", 4.0 * model.hidden * tokens)
        if stage == plan.pp - 1:
            head = _head(model, plan, tokens, setting)
            f, i, w = f + head[0], i + head[1], w + head[2]
        found.append(StageCost(f, i, w, r, kept, 2.0 * model.hidden * tokens / plan.tp))
    return found


def _kept(model: Model, kind: Layer, plan: Plan, batch: Batch) -> float:
    return activations(
        model, kind, plan.micro_batch, batch.tokens, tp=plan.tp, cp=plan.cp, sequence_parallel=plan.sequence_parallel,
        recompute=plan.recompute, attention=plan.attention,
    ).total  # fmt: skip


def _layer_cost(model: Model, kind: Layer, plan: Plan, batch: Batch, s: Setting) -> tuple[float, float, float, float]:
    """(forward, backward for inputs, backward for weights, recomputed) seconds of one layer."""
    tokens = plan.micro_batch * batch.tokens // plan.cp
    core = _core(model, kind, plan, batch, s)
    forward = core
    backward_input = core * (2.5 if plan.attention == "flash" else 2.0)
    backward_weight = mlp = 0.0
    spread = plan.tp if plan.sequence_parallel else 1
    for name, seconds in token_operators(model, kind, tokens, s):
        one = float(seconds)
        if name in ("all-reduce", "dispatch", "combine"):
            continue
        if name in ("norm", "residual"):
            one /= spread
        forward += one
        if name.endswith("gate_up") or name == "act":
            mlp += one
        if name in _PRODUCTS:
            back = _transposed(model, kind.role(name), tokens, s)
            backward_input, backward_weight = backward_input + back[0], backward_weight + back[1]
        elif name in _EXPERTS:
            backward_input, backward_weight = backward_input + one, backward_weight + one
        else:
            backward_input += _passes(name, model.gated) * one
    again = {"none": 0.0, "selective": core, "mlp": mlp, "full": forward}[plan.recompute]
    return forward, backward_input, backward_weight, again


def _passes(kernel: str, gated: bool) -> float:
    """Memory passes of an element-wise kernel's backward over its forward's: a norm reads x and dy and writes dx, for 2 in the forward;
    a gated product reads three and writes two, for 3; a sum and a rotation cost the same both ways."""
    return {"norm": 3 / 2, "act": 5 / 3 if gated else 3 / 2}.get(kernel, 1.0)


def _core(model: Model, kind: Layer, plan: Plan, batch: Batch, s: Setting) -> float:
    """Attention's own seconds, forward: with context parallelism each device has an even share of the pairs."""
    heads = model.heads // plan.tp
    if plan.attention == "unfused":
        return unfused_attention_seconds(s.device, model, plan.micro_batch, batch.tokens // plan.cp, heads) * plan.cp
    seen = plan.micro_batch * pairs(batch.tokens, 0, kind.window, model.causal) / plan.cp
    key, value = model.attention_widths
    moved = 2.0 * plan.micro_batch * batch.tokens / plan.cp * heads * 2 * (key + value)
    return attention_seconds(s.device, pair_flops(model) * seen / plan.tp, moved)


def _transposed(model: Model, tensors: tuple[Tensor, ...], tokens: int, s: Setting) -> tuple[float, float]:
    """Seconds of the products for the gradients of a role's input (m × n · n × k) and of its weights (k × m · m × n)."""
    shapes = [local_shape(model, t, s.tp) for t in tensors]
    n, k = sum(out for _, _, out in shapes), shapes[0][1]
    return gemm_seconds(s.device, tokens, k, n, dtype=s.dtype), gemm_seconds(s.device, k, n, tokens, dtype=s.dtype)


def _head(model: Model, plan: Plan, tokens: int, s: Setting) -> tuple[float, float, float]:
    total = [0.0, 0.0, 0.0]
    for tensor in model.once:
        if tensor.part == "head" and tensor.matmul:
            _, k, n = local_shape(model, tensor, plan.tp)
            back = _transposed(model, (tensor,), tokens, s)
            total = [total[0] + gemm_seconds(s.device, tokens, n, k), total[1] + back[0], total[2] + back[1]]
    loss = element_seconds(s.device, "softmax", 12.0 * model.vocab / plan.tp * tokens)
    return total[0] + loss, total[1] + loss, total[2]


def train_step(model: Model, plan: Plan, cluster: Cluster | str | tuple[Chip, Fabric], batch: Batch) -> StepTime:
    """Seconds of one training step on a cluster (a preset, a description, or a device and what joins it).

    The slowest stage's compute for every micro-batch; tensor-, pipeline- and expert-parallel collectives exposed (tensor-parallel
    ones hidden with `async_tp`); data-parallel ones behind the last micro-batch's backward as far as it reaches (FSDP's behind all
    compute); the bubble (p − 1)/(v·m) of 1F1B; Adam's update.
    """
    plan.check(model)
    on, fabric = cluster if isinstance(cluster, tuple) else Fabric.of_cluster(cluster)
    m, stages = plan.micro_batches(batch), train(model, plan, batch, on)
    slowest = max(range(plan.pp), key=lambda i: stages[i].compute)
    stage = stages[slowest]
    inner = [c for c in volumes(model, plan, batch, stage=slowest) if c.group in ("tp", "ep", "cp")]
    seconds = {id(c): c.count * collective_seconds(fabric, c.kind, c.payload, c.degree, far=_far(c, plan, fabric)) for c in inner}
    hidden = [c for c in inner if c.overlappable_with]
    shown = sum(seconds[id(c)] for c in inner if not c.overlappable_with)
    compute = m * stage.compute
    shown += max(0.0, sum(seconds[id(c)] for c in hidden) - compute)
    sends = 2 * m * plan.vpp * _send(model, plan, batch, fabric) if plan.pp > 1 else 0.0
    busy = compute + shown + sends
    bubble = busy * (plan.pp - 1) / (plan.vpp * m)
    data = _data(model, plan, batch, fabric, stage, m)
    dense, experts = stage_params(model, plan, slowest)
    optimizer = _UPDATE * (dense / plan.fsdp + experts / plan.expert_fsdp) / (on.calibration.eta_m * on.bandwidth)
    total = busy + bubble + data + optimizer
    done, executed = batch.sequences * flops(model, [(batch.tokens, 0)]).train, _executed(model, plan, batch)
    peak = on.peak("bf16") * plan.devices * total
    return StepTime(compute, shown + sends + data, bubble, optimizer, total, done / peak, executed / peak, on.calibration.said())


def _far(c: Collective, plan: Plan, fabric: Fabric) -> bool:
    """Whether a group leaves the node: ranks are laid out tp first, then cp, then dp (and ep with it), then pp."""
    span = {"tp": plan.tp, "cp": plan.tp * plan.cp, "ep": plan.expert_tp * plan.ep, "dp": plan.tp * plan.cp * plan.dp}
    return span.get(c.group, plan.tp * plan.cp * plan.fsdp) > fabric.node


def _send(model: Model, plan: Plan, batch: Batch, fabric: Fabric) -> float:
    payload = 2.0 * plan.micro_batch * batch.tokens / plan.cp * model.hidden / plan.tp
    return float(collective_seconds(fabric, "send", payload, plan.pp, far=plan.devices > fabric.node))


def _data(model: Model, plan: Plan, batch: Batch, fabric: Fabric, stage: StageCost, m: int) -> float:
    """Exposed seconds of data parallelism."""
    groups = [c for c in volumes(model, plan, batch) if c.group in ("dp", "fsdp")]
    seconds = sum(c.count * collective_seconds(fabric, c.kind, c.payload, c.degree, far=_far(c, plan, fabric)) for c in groups)
    backward = stage.backward_input + stage.backward_weight + stage.recompute
    slack = m * stage.compute if plan.fsdp > 1 and plan.zero >= 3 else backward
    return max(0.0, seconds - slack)


def _executed(model: Model, plan: Plan, batch: Batch) -> int:
    """Flops that the devices do: what is recomputed, and attention as its kernel does it (unfused: every pair, causal or not)."""
    one, flash = [(batch.tokens, 0)], plan.attention == "flash"
    causal = None if flash else False
    work = flops(model, one, causal=causal)
    total = 3 * work.matmul + work.attention + (work.attention_backward_executed if flash else work.attention_backward)
    for kind, count in model.kinds:
        each = layer_flops(model, kind, one, causal=causal)
        mlp = activations(model, kind, 1, batch.tokens, recompute="mlp").extra_flops
        total += count * {"none": 0, "selective": each.attention, "mlp": mlp, "full": each.forward}[plan.recompute]
    return batch.sequences * total
