"""Seconds of a training step: each stage's forward and backward pass and recomputation, and the collectives that stay exposed.

Compute comes from the same operators as in serving. Everything is modelled; arenas that schedule replace the formula of the bubble by a
simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.llm.cost.collectives import Collective, volumes
from armillary.llm.cost.counts import flops, layer_flops, local_shape, pair_flops, pairs
from armillary.llm.cost.device import Chip, Fabric, chip
from armillary.llm.cost.memory import activations, stage_params
from armillary.llm.cost.operators import (
    Setting,
    attention_seconds,
    collective_seconds,
    element_seconds,
    gemm_seconds,
    token_operators,
    unfused_attention_seconds,
)
from armillary.llm.cost.plan import Batch, Plan
from armillary.llm.model.shapes import Layer, Model, Tensor

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: The roles in `token_operators` that are matrix products.
_PRODUCTS = ("q_a", "q_b", "kv_a", "kv_b", "qkv", "o", "gate_up", "down", "router", "shared_gate", "shared_gate_up", "shared_down")
_EXPERTS = ("expert_gate_up", "expert_down")
#: Bytes that Adam moves per parameter: it reads the gradient, reads and writes the master weight and both moments, and writes the weight.
_UPDATE = 30.0


@dataclass(frozen=True)
class StageCost:
    """One micro-batch on one pipeline stage: seconds on one device without collectives, and the bytes that the stage keeps and sends on."""

    forward: float
    backward_input: float
    backward_weight: float
    recompute: float
    activation_bytes: float
    send_bytes: float

    @property
    def compute(self) -> float:
        """Seconds of all work of a micro-batch on the stage."""
        return self.forward + self.backward_input + self.backward_weight + self.recompute


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, and the share of the peak that it reaches: `mfu` counts the model's flops, `hfu` also the recomputed ones."""

    compute: float
    exposed_comm: float
    bubble: float
    optimizer: float
    total: float
    mfu: float
    hfu: float
    #: The calibration that the seconds rest on.
    calibration: str
    kind: str = field(default="modelled", init=False)


def train(model: Model, plan: Plan, batch: Batch, device: Chip | str) -> list[StageCost]:
    """The cost of each pipeline stage for one micro-batch; the stages add up to the whole model."""
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
    """The memory passes of an element-wise kernel in the backward pass, divided by those in the forward pass. A norm reads x and dy and
    writes dx, against 2 passes forward; a gated product reads three and writes two, against 3; a sum and a rotation cost the same in both
    directions.
    """
    return {"norm": 3 / 2, "act": 5 / 3 if gated else 3 / 2}.get(kernel, 1.0)


def _core(model: Model, kind: Layer, plan: Plan, batch: Batch, s: Setting) -> float:
    """Seconds of the core of attention in the forward pass; with context parallelism each device has an equal share of the pairs."""
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
    """Seconds of one training step on a cluster (a preset, a description, or a device and its fabric).

    They are the sum of the slowest stage's compute for every micro-batch, the exposed tensor-, pipeline- and expert-parallel collectives
    (`async_tp` hides the tensor-parallel ones), the data-parallel collectives that the backward pass of the last micro-batch does not hide
    (FSDP's hide behind all compute), the bubble (p − 1)/(v·m) of 1F1B, and Adam's update.
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
    """Whether a group spans nodes. Ranks are laid out by tp first, then by cp, by dp (with ep inside it), and by pp."""
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
    """The flops that the devices execute, including recomputation, and attention as its kernel computes it (unfused attention computes
    every pair, causal or not).
    """
    one, flash = [(batch.tokens, 0)], plan.attention == "flash"
    causal = None if flash else False
    work = flops(model, one, causal=causal)
    total = 3 * work.matmul + work.attention + (work.attention_backward_executed if flash else work.attention_backward)
    for kind, count in model.kinds:
        each = layer_flops(model, kind, one, causal=causal)
        mlp = activations(model, kind, 1, batch.tokens, recompute="mlp").extra_flops
        total += count * {"none": 0, "selective": each.attention, "mlp": mlp, "full": each.forward}[plan.recompute]
    return batch.sequences * total
